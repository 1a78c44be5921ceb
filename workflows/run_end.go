package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// end closes the run in one of three ways: done (or stopped early), cancelled,
// failed. Whatever happened, the run's folder says so.
func (r *run) end(ctx workflow.Context, err error) (RunResult, error) {
	defer settle(ctx)
	if canceled(ctx, err) {
		r.sayFarewell(ctx, "cancel", "the run was cancelled", true)
		return RunResult{}, temporal.NewCanceledError()
	}
	stopped := errors.Is(err, errStop)
	if err == nil || stopped {
		err = r.finish(ctx, stopped)
	}
	if err != nil {
		err = surface(err)
		r.sayFarewell(ctx, "fail", err.Error(), false)
		return RunResult{}, err
	}
	return RunResult{RunID: r.plan.RunID, SummaryPath: r.summary, Policy: r.policy, Stopped: stopped}, nil
}

// finish writes the summary.
func (r *run) finish(ctx workflow.Context, stopped bool) error {
	if stopped {
		if err := logEvent(ctx, r.ref, "stop", "the run was stopped"+because(r.gate.Reason)); err != nil {
			return err
		}
	}
	var control *activities.Control
	var out activities.FinishRunResult
	err := workflow.ExecuteLocalActivity(inline(ctx, ""), control.FinishRun, r.finishInput(ctx, stopped)).Get(ctx, &out)
	if err != nil {
		return err
	}
	r.doing, r.summary = StateDone, out.SummaryPath
	r.show(ctx)
	return nil
}

func (r *run) finishInput(ctx workflow.Context, stopped bool) activities.FinishRunInput {
	return activities.FinishRunInput{
		Run: r.ref, Started: r.started, Ended: workflow.Now(ctx),
		SFT: r.sft, Stages: r.reports, Policy: r.policy, Stopped: stopped,
	}
}

// sayFarewell leaves a last line in the event log, and with summary the numbers
// so far. It is best effort: a run that cannot write still ends.
func (r *run) sayFarewell(ctx workflow.Context, kind, text string, summary bool) {
	if r.ref.RunID == "" {
		return // OpenRun made nothing
	}
	ctx, cancel := farewell(ctx, kind)
	defer cancel()
	var control *activities.Control
	err := workflow.ExecuteLocalActivity(ctx, control.LogEvent, activities.LogEventInput{
		Run: r.ref, Time: workflow.Now(ctx), Kind: kind, Text: text,
	}).Get(ctx, nil)
	if err == nil && summary {
		err = workflow.ExecuteLocalActivity(ctx, control.FinishRun, r.finishInput(ctx, true)).Get(ctx, nil)
	}
	if err != nil {
		workflow.GetLogger(ctx).Warn("end of run not recorded", "run_id", r.ref.RunID, "err", err)
	}
}

// forward hands the state to the running stage, one at a time and in order.
func (r *run) forward(ctx workflow.Context) {
	if err := r.forwarding.Lock(ctx); err != nil {
		return // cancelled: the stage is being cancelled, too
	}
	defer r.forwarding.Unlock()
	if r.child == nil {
		return
	}
	// A stage that has just ended cannot be told; the run's own next safe point
	// comes first then.
	_ = r.child.SignalChildWorkflow(ctx, signalGate, r.gate.gateState).Get(ctx, nil)
}

// stageTold notes that the stage stands at a safe point or goes on.
func (r *run) stageTold(state gateState) {
	if r.gate.Stopping || r.child == nil {
		return
	}
	r.gate.gateState, r.gate.waiting = state, state.Paused
}

func (r *run) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, r.status().details())
}

// status is answered without any message from the stage: the run names the
// stage, and whoever wants the steps asks it. One signal per step would cost
// the run three events and a workflow task each, for a number that is looked
// at now and then.
func (r *run) status() RunStatus {
	s := RunStatus{
		RunID: r.in.RunID, State: stateOf(&r.gate, r.doing), Child: r.childID,
		Stage: r.stage, Step: r.last.Step, NumSteps: r.plan.NumSteps(),
		SFTStep: r.sftStep, SFTSteps: r.plan.SFTSteps, Last: r.last,
		PolicyVersion: r.policy.Version, Reason: r.gate.Reason, SummaryPath: r.summary,
	}
	for i, report := range r.reports {
		s.Stages = append(s.Stages, stageStatus(report, r.notes[i]))
		if report.Plan.Index == r.stage {
			s.StageName = report.Plan.Name
		}
	}
	return s
}

func stageStatus(report activities.StageReport, note string) StageStatus {
	s := StageStatus{Name: report.Plan.Name, Steps: report.Plan.Steps, Note: note}
	if report.Before.Label != "" {
		s.Before = outcomeOf(report.Before)
	}
	if report.After.Label != "" {
		s.After = outcomeOf(report.After)
	}
	return s
}
