package activities

import (
	"context"

	"temper/internal/run"
)

// SampleGroups samples the groups of a step. Groups that are in the store
// already, from an attempt that died, are kept as they are.
func (r *Rollouts) SampleGroups(ctx context.Context, in SampleGroupsInput) (run.Sampled, error) {
	progress := r.Sampling.NewProgress()
	ctx, stop := heartbeat(ctx, progress.String)
	defer stop()
	out, err := r.Sampling.SampleGroups(ctx, in, progress)
	return out, toTemporal(err)
}

// EvaluatePolicy measures a policy on the held-out problems of a stage.
// Errors: NotFound for a policy that was never published.
func (r *Rollouts) EvaluatePolicy(ctx context.Context, in EvaluateInput) (run.Evaluation, error) {
	progress := r.Sampling.NewProgress()
	ctx, stop := heartbeat(ctx, progress.String)
	defer stop()
	out, err := r.Sampling.Evaluate(ctx, in, progress)
	return out, toTemporal(err)
}

// FilterProblems samples every training problem of a stage with the current
// policy and removes those that all rollouts solve (recipe, RL stage 3).
func (r *Rollouts) FilterProblems(ctx context.Context, in FilterInput) (run.FilterResult, error) {
	progress := r.Sampling.NewProgress()
	ctx, stop := heartbeat(ctx, progress.String)
	defer stop()
	out, err := r.Sampling.Filter(ctx, in, progress)
	return out, toTemporal(err)
}

// MendObject makes a damaged or missing object of a run again and puts it back.
// Errors: Corrupt for one that cannot be made again.
func (r *Rollouts) MendObject(ctx context.Context, in MendInput) error {
	ctx, stop := heartbeat(ctx, func() string { return "making " + in.Damaged.Key + " again" })
	defer stop()
	return toTemporal(r.Mender.Mend(ctx, in))
}
