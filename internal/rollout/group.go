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

// Groups runs one group of n trajectories for each problem, which differ, and calls
// done when a group has finished, for one group at a time. Trajectories start in the
// order of problems, so that the first groups finish early. The first error, of a
// trajectory or of done, ends everything. No goroutine outlives the call.
func (r *Runner) Groups(ctx context.Context, spec Spec, problems []rl.Problem, n int, done func(rl.Group) error) error {
	open := make(map[string]*pendingGroup, len(problems))
	for _, p := range problems {
		open[p.ID] = &pendingGroup{group: rl.Group{Problem: p, Trajectories: make([]rl.Trajectory, n)}, left: n}
	}
	specs := func(yield func(Spec) bool) {
		for _, p := range problems {
			for i := range n {
				s := spec
				s.Problem, s.Rollout = p, i
				if !yield(s) {
					return
				}
			}
		}
	}
	var calling sync.Mutex
	var failed error // nothing is done after a failure
	return r.Each(ctx, specs, func(s Spec, t rl.Trajectory) error {
		calling.Lock()
		defer calling.Unlock()
		if failed != nil {
			return failed
		}
		g := open[s.Problem.ID]
		g.group.Trajectories[s.Rollout] = t
		if g.left--; g.left > 0 {
			return nil
		}
		delete(open, s.Problem.ID)
		failed = done(g.group)
		return failed
	})
}

// pendingGroup is a group whose trajectories are being sampled.
type pendingGroup struct {
	group rl.Group
	left  int
}
