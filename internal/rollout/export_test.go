package rollout

import (
	"context"

	"temper/internal/rl"
)

// Rollout runs one trajectory to its end.
func (r *Runner) Rollout(ctx context.Context, spec Spec) (rl.Trajectory, error) {
	if err := r.acquireSlot(ctx); err != nil {
		return rl.Trajectory{}, err
	}
	if err := r.announce(ctx, []Spec{spec}); err != nil {
		r.releaseSlot()
		return rl.Trajectory{}, err
	}
	return r.runInSlot(ctx, spec)
}
