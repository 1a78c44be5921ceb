package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// beginFork takes over what the parent of a fork has made and measured, up to the checkpoint.
func (r *runFlow) beginFork(ctx workflow.Context, f run.ForkPlan) error {
	r.at.sftStep, r.at.saved = r.at.plan.SFTSteps, f.Step
	for i := range r.at.reports {
		if i < len(f.Reports) {
			plan := r.at.reports[i].Plan
			r.at.reports[i] = f.Reports[i]
			r.at.reports[i].Plan = plan
		}
		if i < len(f.Made) {
			r.at.made[i] = f.Made[i]
		}
	}
	r.at.last.Step = f.Step
	r.at.inherited = map[int]run.Skip{}
	for _, skip := range f.Skips {
		r.at.inherited[skip.Stage] = skip
	}
	if err := logEvent(ctx, r.at.ref, "fork", fmt.Sprintf("of run %s, step %d", f.RunID, f.Step)); err != nil {
		return err
	}
	if err := r.state.enter(ctx, StatePreparing); err != nil {
		return err
	}
	return r.workers.publish(ctx, f.Step)
}

// skipInherited leaves out a stage that ended in the parent where the fork begins, or before,
// or that the parent was to leave out.
func (r *runFlow) skipInherited(ctx workflow.Context, i int) (bool, error) {
	plan := r.at.reports[i].Plan
	skip, ok := r.at.inheritedSkip(plan.Index)
	if !ok {
		return false, nil
	}
	why := fmt.Sprintf("%s, as in run %s", skip.Why, r.at.plan.Fork.RunID)
	r.at.notes[i] = why
	if plan.FirstStep+skip.After > max(plan.FirstStep, r.at.plan.Fork.Step+1) {
		return false, nil // some of its steps are to be made; see StageInput.EndBefore
	}
	if err := logEvent(ctx, r.at.ref, run.EventSkip, fmt.Sprintf("stage %d (%s): %s", plan.Index, plan.Name, why)); err != nil {
		return true, err
	}
	if r.at.reports[i].After.Label != "" {
		return true, nil // measured by the parent
	}
	return true, r.evaluations.ofStage(ctx, i, LabelAfter)
}

// noteCut writes down where a stage ended by a command, for the forks of this
// run. The end of the whole run is no such order.
func (r *runFlow) noteCut(ctx workflow.Context, i int, out StageResult) error {
	plan := r.at.reports[i].Plan
	if out.Cut == "" || out.Cut == CommandStop && r.gate.Stopping {
		return nil
	}
	skip := run.Skip{Stage: plan.Index, After: out.Step + 1 - plan.FirstStep, Why: out.Note}
	return logSkip(ctx, r.at.ref, skip, fmt.Sprintf("stage %d (%s) ends before step %d in forks of this run, too", plan.Index, plan.Name, out.Step+1))
}
