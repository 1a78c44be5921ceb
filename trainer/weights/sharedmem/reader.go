package sharedmem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
	"temper/trainer/weights/tensor"
)

// parallel is the number of shards read or checked at a time.
const parallel = 4

// Reader opens the weights of policies for engines: in the memory of the host if they are
// there, else from the store. Its methods may be called concurrently.
type Reader struct {
	Store    blob.Store
	Segments *Segments // nil reads the store alone
	// Keep holds the shards of the last policy read from the store, so that the next policy
	// reuses the unchanged ones. It costs no memory when an engine reads the weights in place.
	Keep bool
	Log  *slog.Logger

	moved counts
	wg    sync.WaitGroup // of background opens and closes
	mu    sync.Mutex
	kept  map[string][]tensor.Stored // by SHA-256
	ahead *ahead
}

// counts are bytes of weights by source.
type counts struct{ process, host, store, kept atomic.Int64 }

// Moved is the number of bytes of weights by source.
type Moved struct {
	// Process and Host bytes were mapped and not copied; Host bytes were also checked. Store
	// bytes were read and checked. Kept bytes come from the policy before.
	Process, Host, Store, Kept int64
}

// Plus adds counts.
func (m Moved) Plus(o Moved) Moved {
	return Moved{m.Process + o.Process, m.Host + o.Host, m.Store + o.Store, m.Kept + o.Kept}
}

// Moved returns the counts since the start.
func (r *Reader) Moved() Moved {
	return Moved{r.moved.process.Load(), r.moved.host.Load(), r.moved.store.Load(), r.moved.kept.Load()}
}

// Weights are the weights of a policy, valid until Close.
type Weights struct {
	byName map[string]tensor.Stored
	done   func() error
}

// Stored returns a weight.
func (w *Weights) Stored(name string) (tensor.Stored, error) {
	t, ok := w.byName[name]
	if !ok {
		return t, fmt.Errorf("no tensor %s", name)
	}
	return t, nil
}

// Close releases the weights.
func (w *Weights) Close() error {
	done := w.done
	w.done = nil
	if done == nil {
		return nil
	}
	return done()
}

// ahead is a policy that Prefetch opens.
type ahead struct {
	ref     blob.Ref
	cancel  context.CancelFunc
	done    chan struct{}
	weights *Weights
	err     error
}

// Prefetch opens the policy at ref in the background, so that the next Open of it is fast. It
// does not wait. A Reader holds one prefetched policy, the last one.
func (r *Reader) Prefetch(ctx context.Context, ref blob.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ahead != nil && r.ahead.ref == ref {
		return
	}
	r.dropAhead()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &ahead{ref: ref, cancel: cancel, done: make(chan struct{})}
	r.ahead = a
	r.wg.Go(func() {
		defer cancel()
		defer close(a.done)
		a.weights, a.err = r.open(ctx, ref)
	})
}

// dropAhead discards the prefetched policy. The caller holds the lock.
func (r *Reader) dropAhead() {
	if a := r.ahead; a != nil {
		r.ahead = nil
		r.wg.Go(func() { r.giveBack(a) })
	}
}

// giveBack cancels a prefetch and releases its memory for the next policy.
func (r *Reader) giveBack(a *ahead) {
	a.cancel()
	<-a.done
	if a.err == nil {
		r.warn("give back what was opened ahead", a.ref, a.weights.Close())
	}
}

// Close discards the prefetched policy and waits for that.
func (r *Reader) Close() {
	r.mu.Lock()
	r.dropAhead()
	r.mu.Unlock()
	r.wg.Wait()
}

// Open opens the policy whose manifest is at ref. It returns the errors of
// checkpoint.LoadWeights.
func (r *Reader) Open(ctx context.Context, ref blob.Ref) (*Weights, error) {
	r.mu.Lock()
	a := r.ahead
	if a != nil && a.ref == ref {
		r.ahead = nil
	} else {
		a = nil
	}
	r.mu.Unlock()
	if a != nil {
		select {
		case <-a.done:
			if a.err == nil {
				return a.weights, nil
			}
		case <-ctx.Done():
			r.wg.Go(func() { r.giveBack(a) })
			return nil, ctx.Err()
		}
	}
	return r.open(ctx, ref)
}

func (r *Reader) open(ctx context.Context, ref blob.Ref) (*Weights, error) {
	shards, err := checkpoint.PolicyShards(ctx, r.Store, ref)
	if err != nil {
		return nil, fmt.Errorf("load policy %s: %w", ref.Key, err)
	}
	if shards == nil {
		p, err := checkpoint.LoadWeights(ctx, r.Store, ref)
		if err != nil {
			return nil, err
		}
		parts := make([]tensor.Stored, len(p.Weights))
		for i, t := range p.Weights {
			parts[i] = t.Stored()
			r.moved.store.Add(int64(4 * len(t.Data)))
		}
		return newWeights(nil, parts), nil
	}
	w, err := r.shared(ctx, ref, shards)
	if err != nil && ctx.Err() == nil {
		r.warn("leave out shared memory and read the store", ref, err)
	}
	if w != nil {
		return w, nil
	}
	if w, err = r.stored(ctx, shards); err != nil {
		return nil, fmt.Errorf("load policy %s: %w", ref.Key, err)
	}
	return w, nil
}

func (r *Reader) warn(doing string, ref blob.Ref, err error) {
	if err != nil && r.Log != nil {
		r.Log.Warn("weights in memory are not used", "doing", doing, "ref", ref.Key, "err", err)
	}
}

func newWeights(done func() error, parts ...[]tensor.Stored) *Weights {
	w := &Weights{byName: map[string]tensor.Stored{}, done: done}
	for _, t := range slices.Concat(parts...) {
		w.byName[t.Name] = t
	}
	return w
}

// shared opens the segment of a policy, nil for none.
func (r *Reader) shared(ctx context.Context, ref blob.Ref, shards []checkpoint.Shard) (*Weights, error) {
	m, made, done, err := r.Segments.find(ref)
	if m == nil || err != nil {
		return nil, err
	}
	parts, err := view(ctx, m, shards, made)
	if err != nil {
		return nil, errors.Join(err, done())
	}
	for _, s := range shards {
		if made {
			r.moved.process.Add(s.Size)
		} else {
			r.moved.host.Add(s.Size)
		}
	}
	return newWeights(done, parts...), nil
}

// view finds the shards in a segment and compares them with the sums of the store. A segment
// that this process made was hashed when it was written.
func view(ctx context.Context, m *mapping, shards []checkpoint.Shard, made bool) ([][]tensor.Stored, error) {
	if len(m.header.Shards) != len(shards) {
		return nil, fmt.Errorf("%s: %d shards, the policy has %d: %w", m.path, len(m.header.Shards), len(shards), errOther)
	}
	parts := make([][]tensor.Stored, len(shards))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, data := range m.shards() {
		if m.header.Shards[i].SHA256 != shards[i].SHA256 {
			return nil, errors.Join(fmt.Errorf("%s: shard %d is %.12s, the policy has %.12s: %w", m.path, i, m.header.Shards[i].SHA256, shards[i].SHA256, errOther), g.Wait())
		}
		g.Go(func() (err error) {
			parts[i], err = shards[i].View(ctx, data, made)
			return err
		})
	}
	return parts, g.Wait()
}

// stored reads the shards that are not kept from the store.
func (r *Reader) stored(ctx context.Context, shards []checkpoint.Shard) (*Weights, error) {
	r.mu.Lock()
	kept := r.kept
	r.mu.Unlock()
	parts := make([][]tensor.Stored, len(shards))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, s := range shards {
		if have, ok := kept[s.SHA256]; ok {
			parts[i] = have
			r.moved.kept.Add(s.Size)
			continue
		}
		g.Go(func() error {
			read, err := s.Read(ctx, r.Store)
			for _, t := range read {
				parts[i] = append(parts[i], t.Stored())
			}
			r.moved.store.Add(s.Size)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if r.Keep {
		next := map[string][]tensor.Stored{}
		for i, s := range shards {
			next[s.SHA256] = parts[i]
		}
		r.mu.Lock()
		r.kept = next
		r.mu.Unlock()
	}
	return newWeights(nil, parts...), nil
}
