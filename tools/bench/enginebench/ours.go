package enginebench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"temper/internal/inference"
	"temper/tools/bench/meter"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
)

// temper is our engine in this process.
type temper struct {
	e       *engine.Engine
	plan    Plan
	version int64
}

// openTemper starts an engine with start weights for a case.
func openTemper(ctx context.Context, p Plan, c Case) (*temper, error) {
	p.Model.MaxPositionEmbeddings = max(p.Model.MaxPositionEmbeddings, c.Context)
	e, err := engine.New(engine.Config{Model: p.Model, Backend: p.Backend, Ahead: p.Ahead, Kernels: p.Kernels, Slots: c.Batch, Shards: p.Shards, Graph: p.Graph, MaxContext: c.Context})
	if err != nil {
		return nil, err
	}
	t := &temper{e: e, plan: p, version: 1}
	if err := p.load(ctx, e, t.version); err != nil {
		e.Close()
		return nil, err
	}
	return t, nil
}

// forget makes the engine forget all prompts where that decides about bits: an XLA device
// computes a prompt in pieces that depend on what the caches hold of it.
func (t *temper) forget(ctx context.Context) error {
	if t.e.Stats().Ahead.Programs == 0 {
		return nil
	}
	t.version++
	return t.plan.load(ctx, t.e, t.version)
}

// load gives an engine the weights of the plan.
func (p Plan) load(ctx context.Context, e *engine.Engine, version int64) error {
	if p.Dir != "" {
		dir, err := hf.Load(p.Dir)
		if err != nil {
			return err
		}
		return e.LoadFrom(ctx, hf.Mapped{Model: dir}, version)
	}
	weights, err := model.InitialTensors(p.Model, p.Seed)
	if err != nil {
		return err
	}
	return e.LoadTensors(ctx, weights, version)
}

func (t *temper) Name() string { return "temper" }

// Decode has two parts, with a wait for all between them: each prompt with its first
// token, and then the other tokens, for which the caches hold the prompts.
func (t *temper) Decode(ctx context.Context, prompts [][]int32, newTokens int) (Round, error) {
	if err := t.forget(ctx); err != nil {
		return Round{}, err
	}
	begin := time.Now()
	firsts := make([]time.Duration, len(prompts))
	first, err := t.generate(ctx, prompts, 1, func(i int) { firsts[i] = time.Since(begin) })
	if err != nil {
		return Round{}, err
	}
	longer := make([][]int32, len(prompts))
	for i, p := range prompts {
		longer[i] = append(append(make([]int32, 0, len(p)+1), p...), first[i].Tokens...)
	}
	use, before := meter.Now(), t.e.Stats().Ahead
	rest, err := t.generate(ctx, longer, newTokens-1, func(int) {})
	if err != nil {
		return Round{}, err
	}
	cost := use.Since(1)
	for i := range prompts {
		t.e.Release(fmt.Sprint(i))
	}
	tokens := len(prompts) * (newTokens - 1)
	now := t.e.Stats().Ahead
	return Round{
		HostShare: hostShare(before, now), Transfers: float64(now.Up+now.Down-before.Up-before.Down) / float64(tokens), Programs: now.Programs,
		FirstToken: meter.Median(firsts), Wall: cost.Wall, CPU: cost.CPU, Tokens: tokens, Digest: digest(first, rest),
		PeakRSS: meter.PeakRSS(),
	}, nil
}

// hostShare is the part of steps in which the device waits for the host; 0 for engines that have no
// such device.
func hostShare(before, now engine.AheadStats) float64 {
	steps := now.Steps - before.Steps
	if steps == 0 {
		return 0
	}
	return 1 - (now.Device-before.Device).Seconds()/steps.Seconds()
}

// generate serves all contexts at once. A session is the index of its prompt, and so is
// a seed.
func (t *temper) generate(ctx context.Context, contexts [][]int32, n int, done func(i int)) ([]inference.Generation, error) {
	out, errs := make([]inference.Generation, len(contexts)), make([]error, len(contexts))
	var wg sync.WaitGroup
	for i, c := range contexts {
		wg.Go(func() {
			out[i], errs[i] = t.e.Generate(ctx, inference.Request{
				Tokens: c, MaxTokens: n, Temperature: 1, Seed: uint64(i), Version: -1, Session: fmt.Sprint(i),
			})
			done(i)
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// digest is of all tokens and the bits of their log-probabilities, in the order of the
// prompts.
func digest(parts ...[]inference.Generation) string {
	h := sha256.New()
	for i := range parts[0] {
		for _, part := range parts {
			_ = binary.Write(h, binary.LittleEndian, part[i].Tokens) // a hash takes everything
			_ = binary.Write(h, binary.LittleEndian, part[i].Logprobs)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
