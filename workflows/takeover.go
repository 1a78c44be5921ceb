package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// takeOver begins a fork: its parent has made the steps up to the checkpoint and
// measured them.
func (r *run) takeOver(ctx workflow.Context, f activities.ForkPlan) error {
	r.sftStep, r.saved = r.plan.SFTSteps, f.Step
	for i := range r.reports {
		if i < len(f.Reports) {
			plan := r.reports[i].Plan
			r.reports[i] = f.Reports[i]
			r.reports[i].Plan = plan
		}
		if i < len(f.Made) {
			r.made[i] = f.Made[i]
		}
	}
	r.last.Step = f.Step
	if err := logEvent(ctx, r.ref, "fork", fmt.Sprintf("of run %s, step %d", f.RunID, f.Step)); err != nil {
		return err
	}
	if err := r.enter(ctx, StatePreparing); err != nil {
		return err
	}
	return r.publish(ctx, f.Step)
}
