package rollout

import (
	"context"
	"iter"
	"sync"

	"temper/internal/inference"
	"temper/internal/rl"
)

// Each runs a trajectory for each spec and calls ended with each one that has ended,
// for several at a time. Trajectories start in the order of specs as slots become free; an
// engine that plans is told of all that start together. The first error, of a trajectory or of ended, ends everything. No goroutine outlives
// the call.
func (r *Runner) Each(ctx context.Context, specs iter.Seq[Spec], ended func(Spec, rl.Trajectory) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var ready []Spec // each has a slot
	start := func() {
		if err := r.announce(ctx, ready); err != nil {
			cancel(err) // what starts below ends at once
		}
		for _, s := range ready {
			wg.Go(func() {
				if err := r.runOne(ctx, s, ended); err != nil {
					cancel(err)
				}
			})
		}
		ready = ready[:0]
	}
	for s := range specs {
		if !r.tryAcquireSlot() {
			start()
			if r.acquireSlot(ctx) != nil {
				break // the cause is returned below
			}
		}
		ready = append(ready, s)
	}
	start()
	wg.Wait()
	return context.Cause(ctx)
}

// runOne runs a trajectory in a slot and hands it on, unless everything has ended.
func (r *Runner) runOne(ctx context.Context, s Spec, ended func(Spec, rl.Trajectory) error) error {
	t, err := r.runInSlot(ctx, s)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return ended(s, t)
}

// announce tells an engine that plans which trajectories begin. One that cannot be run is
// left out: its own error says more.
func (r *Runner) announce(ctx context.Context, specs []Spec) error {
	planner, ok := r.deps.Engine.(inference.Planner)
	if !ok || len(specs) == 0 || ctx.Err() != nil {
		return nil
	}
	list := make([]inference.Trajectory, 0, len(specs))
	most, prompt := planner.MaxContext(), 0
	for i := range specs {
		s := &specs[i]
		if i == 0 || s.Problem.ID != specs[i-1].Problem.ID {
			prompt = 0
			if transcript, err := r.deps.Format.Begin(s.Problem.Prompt); err == nil {
				prompt = transcript.PromptTokens()
			}
		}
		have, limit := prompt, min(s.MaxResponseTokens, most-prompt)
		if s.Part != nil {
			have, limit = s.Part.announce(prompt, limit)
		}
		if prompt > 0 && limit > 0 {
			list = append(list, inference.Trajectory{
				Session: s.name(), Run: s.RunID, Problem: s.Problem.ID, Stage: s.Stage, Step: s.Step, Prompt: have, Limit: limit,
			})
		}
	}
	return planner.Begin(ctx, list)
}

// tryAcquireSlot takes a slot if one is free.
func (r *Runner) tryAcquireSlot() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// acquireSlot waits for a slot.
func (r *Runner) acquireSlot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Runner) releaseSlot() { <-r.slots }
