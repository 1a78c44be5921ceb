package rollout

import (
	"context"
	"fmt"
	"sync"

	"temper/internal/rl"
)

// Group runs n trajectories of spec.Problem, with Rollout 0 to n-1, and returns
// them in that order. The first error ends the others.
func (r *Runner) Group(ctx context.Context, spec Spec, n int) (rl.Group, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group := rl.Group{Problem: spec.Problem, Trajectories: make([]rl.Trajectory, n)}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s := spec
			s.Rollout = i
			t, err := r.Rollout(ctx, s)
			if err != nil {
				cancel(err)
				return
			}
			group.Trajectories[i] = t
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return rl.Group{}, fmt.Errorf("group %s: %w", spec.Problem.ID, err)
	}
	return group, nil
}

// Groups runs one group of n trajectories for each problem, all sharing the
// runner's slots, and calls done for each group as it finishes, one call at a
// time. The first error, also of done, ends everything.
func (r *Runner) Groups(ctx context.Context, spec Spec, problems []rl.Problem, n int, done func(rl.Group) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, p := range problems {
		wg.Go(func() {
			s := spec
			s.Problem = p
			group, err := r.Group(ctx, s, n)
			if err != nil {
				cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if err := done(group); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
