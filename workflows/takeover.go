package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// inheritance is what a run has from the run that it forks, and what it records for
// its own forks.
type inheritance struct{ *runFlow }

// begin begins a fork: its parent has made the steps up to the checkpoint and
// measured them.
func (r inheritance) begin(ctx workflow.Context, f run.ForkPlan) error {
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
	r.inherited = map[int]run.Skip{}
	for _, skip := range f.Skips {
		r.inherited[skip.Stage] = skip
	}
	if err := logEvent(ctx, r.ref, "fork", fmt.Sprintf("of run %s, step %d", f.RunID, f.Step)); err != nil {
		return err
	}
	if err := r.enter(ctx, StatePreparing); err != nil {
		return err
	}
	return r.publish(ctx, f.Step)
}

// passOver leaves out a stage that ended in the parent where the fork
// begins, or before, or that the parent was to leave out.
func (r inheritance) passOver(ctx workflow.Context, i int) (bool, error) {
	plan := r.reports[i].Plan
	skip, ok := r.inheritedSkip(plan.Index)
	if !ok {
		return false, nil
	}
	why := fmt.Sprintf("%s, as in run %s", skip.Why, r.plan.Fork.RunID)
	r.notes[i] = why
	if plan.FirstStep+skip.After > max(plan.FirstStep, r.plan.Fork.Step+1) {
		return false, nil // some of its steps are to be made; see StageInput.EndBefore
	}
	if err := logEvent(ctx, r.ref, run.EventSkip, fmt.Sprintf("stage %d (%s): %s", plan.Index, plan.Name, why)); err != nil {
		return true, err
	}
	if r.reports[i].After.Label != "" {
		return true, nil // measured by the parent
	}
	return true, r.evaluate(ctx, i, LabelAfter)
}

// noteCut writes down where a stage ended by a command, for the forks of this
// run. The end of the whole run is no such order.
func (r inheritance) noteCut(ctx workflow.Context, i int, out StageResult) error {
	plan := r.reports[i].Plan
	if out.Cut == "" || out.Cut == CommandStop && r.gate.Stopping {
		return nil
	}
	skip := run.Skip{Stage: plan.Index, After: out.Step + 1 - plan.FirstStep, Why: out.Note}
	return logSkip(ctx, r.ref, skip, fmt.Sprintf("stage %d (%s) ends before step %d in forks of this run, too", plan.Index, plan.Name, out.Step+1))
}
