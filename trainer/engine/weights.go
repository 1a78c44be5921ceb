package engine

import (
	"context"
	"errors"
	"fmt"

	"temper/trainer/cpu/decode"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// Source holds the weights of a policy, for example in a model directory.
type Source interface {
	// Stored returns a weight. Its values do not change before Close.
	Stored(name string) (tensor.Stored, error)
	Close() error
}

// LoadFrom is LoadTensors with the weights of a source. The engine closes the source: at once
// if it copied the weights, else when no pass reads them any more.
func (e *Engine) LoadFrom(ctx context.Context, from Source, version int64) error {
	weights := map[string]tensor.Stored{}
	var errs []error
	for _, spec := range e.cfg.Model.Tensors() {
		t, err := from.Stored(spec.Name)
		if weights[spec.Name] = t; err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("load policy version %d: %w", version, errors.Join(err, from.Close()))
	}
	find := func(name string) (tensor.Stored, bool) {
		t, ok := weights[name]
		return t, ok
	}
	return e.load(ctx, find, from.Close, version)
}

// LoadTensors is Load with weights in memory. It returns when the requests before it have
// ended and the new weights are in use. A swap that has begun continues after ctx is done, so
// that all shards serve one version. The engine may read the values while it serves them: the
// caller must not change them.
func (e *Engine) LoadTensors(ctx context.Context, weights []tensor.Named, version int64) error {
	return e.load(ctx, tensor.StoredByName(weights), func() error { return nil }, version)
}

// load replaces the weights of all shards. It calls release once, when they are not read any
// more.
func (e *Engine) load(ctx context.Context, find tensor.Lookup, release func() error, version int64) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	s, err := e.newSwap(ctx, find, version)
	if s == nil {
		return errors.Join(err, release())
	}
	err = e.swapAll(s)
	if err != nil || s.net == nil || !s.net.InPlace() {
		return errors.Join(err, release())
	}
	old := e.release
	e.release = release
	if old != nil {
		return old()
	}
	return nil
}

// newSwap prepares weights for the shards, shared where possible; nil without an error if the
// engine has that version already.
func (e *Engine) newSwap(ctx context.Context, find tensor.Lookup, version int64) (*swap, error) {
	if version < 0 {
		return nil, fmt.Errorf("load policy: version %d, want 0 or more", version)
	}
	if version == e.Version() {
		return nil, nil
	}
	err := errors.Join(ctx.Err(), e.cfg.Model.CheckStored(find))
	s := &swap{weights: find, version: version, done: make(chan error, len(e.shards))}
	if err == nil && e.Native() {
		s.net, err = decode.NewNetwork(e.cfg.Model, e.cfg.Kernels, decode.LayoutOf(e.cfg.Model), find)
	}
	if err != nil {
		return nil, fmt.Errorf("load policy version %d: %w", version, err)
	}
	return s, nil
}

// swapAll waits until every shard serves the new weights.
func (e *Engine) swapAll(s *swap) error {
	for _, shard := range e.shards {
		shard.commands.change(s)
	}
	var errs []error
	for range e.shards {
		select {
		case err := <-s.done:
			errs = append(errs, err)
		case <-e.closed:
			return errClosed
		}
	}
	if err := errors.Join(errs...); err != nil {
		e.version.Store(-1)
		return fmt.Errorf("load policy version %d: %w", s.version, err)
	}
	e.version.Store(s.version)
	return nil
}

// swap asks a shard to replace its weights once its jobs have ended.
type swap struct {
	weights tensor.Lookup
	net     *decode.Network // of the weights, where passes are native
	version int64
	done    chan error // holds one for each shard
}

// named returns weights for a graph, which copies each.
func (s *swap) named(name string) (model.Tensor, bool) {
	t, ok := s.weights(name)
	return t.Named(), ok
}
