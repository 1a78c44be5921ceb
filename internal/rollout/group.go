package rollout

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"temper/internal/rl"
)

// Group runs n trajectories of spec.Problem, with Rollout 0 to n-1, and returns
// them in that order. The first error ends the others.
func (r *Runner) Group(ctx context.Context, spec Spec, n int) (rl.Group, error) {
	var out rl.Group
	err := r.Groups(ctx, spec, []rl.Problem{spec.Problem}, n, func(g rl.Group) error {
		out = g
		return nil
	})
	if err != nil {
		return rl.Group{}, fmt.Errorf("group %s: %w", spec.Problem.ID, err)
	}
	return out, nil
}

// Groups runs one group of n trajectories for each problem and calls done when a group
// has finished, for one group at a time. Trajectories start in the order of problems
// as slots become free, so that the first groups finish early. The first error, of a
// trajectory or of done, ends everything. No goroutine outlives the call.
func (r *Runner) Groups(ctx context.Context, spec Spec, problems []rl.Problem, n int, done func(rl.Group) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var calling sync.Mutex
	for _, p := range problems {
		g := &pendingGroup{group: rl.Group{Problem: p, Trajectories: make([]rl.Trajectory, n)}}
		for i := range n {
			if r.acquireSlot(ctx) != nil {
				break // the cause is returned below
			}
			wg.Go(func() {
				s := spec
				s.Problem, s.Rollout = p, i
				last, err := g.runTrajectory(ctx, r, s)
				if err == nil && last {
					calling.Lock()
					defer calling.Unlock()
					if err = ctx.Err(); err == nil {
						err = done(g.group)
					}
				}
				if err != nil {
					cancel(err)
				}
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

// pendingGroup is a group whose trajectories are being sampled.
type pendingGroup struct {
	group    rl.Group
	finished atomic.Int64
}

// runTrajectory runs one trajectory in the slot that the caller holds, and reports
// whether it was the last of the group.
func (g *pendingGroup) runTrajectory(ctx context.Context, r *Runner, s Spec) (last bool, err error) {
	t, err := r.runInSlot(ctx, s)
	if err != nil {
		return false, err
	}
	g.group.Trajectories[s.Rollout] = t
	return g.finished.Add(1) == int64(len(g.group.Trajectories)), nil
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
