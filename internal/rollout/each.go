package rollout

import (
	"context"
	"iter"
	"sync"

	"temper/internal/rl"
)

// Each runs a trajectory for each spec and calls ended with each one that has ended,
// for several at a time. Trajectories start in the order of specs as slots become free.
// The first error, of a trajectory or of ended, ends everything. No goroutine outlives
// the call.
func (r *Runner) Each(ctx context.Context, specs iter.Seq[Spec], ended func(Spec, rl.Trajectory) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for s := range specs {
		if r.acquireSlot(ctx) != nil {
			break // the cause is returned below
		}
		wg.Go(func() {
			t, err := r.runInSlot(ctx, s)
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = ended(s, t)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
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
