package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// end closes the run in one of three ways: done (or stopped early), cancelled,
// failed. Whatever happened, the run's folder says so.
func (r *runFlow) end(ctx workflow.Context, err error) (RunResult, error) {
	r.closing = true
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
	return RunResult{
		RunID: r.plan.RunID, SummaryPath: r.summary, Policy: r.policy, Stopped: stopped, Restarted: r.restarted,
	}, nil
}

// finish writes the summary.
func (r *runFlow) finish(ctx workflow.Context, stopped bool) error {
	if stopped {
		if err := logEvent(ctx, r.ref, "stop", "the run was stopped"+who(r.gate.Reason, r.gate.By)); err != nil {
			return err
		}
		if err := r.startNext(ctx); err != nil {
			return err
		}
	}
	var control *activities.Control
	var out run.FinishResult
	err := workflow.ExecuteLocalActivity(inline(ctx, "write the summary"), control.FinishRun, r.finishInput(ctx, stopped)).Get(ctx, &out)
	if err != nil {
		return err
	}
	r.summary = out.SummaryPath
	return r.turnTo(ctx, StateDone)
}

// startNext starts the run that a restart asked for. It belongs to nobody: this
// run ends, and what becomes of the other is its own affair.
func (r *runFlow) startNext(ctx workflow.Context) error {
	if r.next == nil {
		return nil
	}
	from := r.next.Fork
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: RunWorkflowID(r.next.RunID), TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary: fmt.Sprintf("run %s, from step %d of run %s", r.next.RunID, from.Step, from.RunID), Priority: priority(r.next.Priority),
	})
	if err := workflow.ExecuteChildWorkflow(ctx, RLRun, *r.next).GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		// This run ends in any case, and says that nobody goes on.
		return logEvent(ctx, r.ref, CommandRestart, fmt.Sprintf("run %s did not start: %v", r.next.RunID, err))
	}
	r.restarted = r.next.RunID
	return logEvent(ctx, r.ref, CommandRestart, fmt.Sprintf("run %s goes on from step %d", r.restarted, from.Step))
}

func (r *runFlow) finishInput(ctx workflow.Context, stopped bool) activities.FinishRunInput {
	in := activities.FinishRunInput{
		Run: r.ref, Started: r.started, Ended: workflow.Now(ctx),
		SFT: r.sft, Stages: r.reports, Policy: r.policy, Stopped: stopped, Restarted: r.restarted,
	}
	if f := r.plan.Fork; f != nil {
		in.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	return in
}

// sayFarewell leaves a last line in the event log, and with summary the numbers
// so far. It is best effort: a run that cannot write still ends.
func (r *runFlow) sayFarewell(ctx workflow.Context, kind, text string, summary bool) {
	ctx, cancel := farewell(ctx, "last words: "+kind)
	defer cancel()
	var control *activities.Control
	if r.ref.RunID == "" {
		// A cancellation met OpenRun, which may have claimed the run id: it is asked
		// again, so that what is in the store has an end. A refused run has nothing.
		if err := r.openAgain(ctx, summary); err != nil {
			workflow.GetLogger(ctx).Warn("run ends without a folder", "run_id", r.in.RunID, "err", err)
			return
		}
	}
	err := workflow.ExecuteLocalActivity(ctx, control.LogEvent, run.Event{
		Run: r.ref, Time: workflow.Now(ctx), Kind: kind, Text: text,
	}).Get(ctx, nil)
	if err == nil && summary {
		err = workflow.ExecuteLocalActivity(ctx, control.FinishRun, r.finishInput(ctx, true)).Get(ctx, nil)
	}
	if err != nil {
		workflow.GetLogger(ctx).Warn("end of run not recorded", "run_id", r.ref.RunID, "err", err)
	}
}

// openAgain learns the plan for a run that is cancelled.
func (r *runFlow) openAgain(ctx workflow.Context, cancelled bool) error {
	if !cancelled {
		return errors.New("nothing was opened")
	}
	var control *activities.Control
	if err := workflow.ExecuteLocalActivity(ctx, control.OpenRun, r.in).Get(ctx, &r.plan); err != nil {
		return err
	}
	r.take()
	return nil
}

// forward hands the state to the running stage, one at a time and in order.
func (r *runFlow) forward(ctx workflow.Context) {
	if err := r.forwarding.Lock(ctx); err != nil {
		return // cancelled: the stage is being cancelled, too
	}
	defer r.forwarding.Unlock()
	if r.child == nil {
		return
	}
	// A stage that has just ended cannot be told; the run's own next safe point
	// comes first then.
	_ = r.child.SignalChildWorkflow(ctx, signalGate, r.gate.holding).Get(ctx, nil)
}

// stageTold notes that the stage stands at a safe point or goes on.
func (r *runFlow) stageTold(ctx workflow.Context, from workflow.ReceiveChannel) bool {
	var news stageNews
	if !from.ReceiveAsync(&news) {
		return false
	}
	if r.gate.Stopping || r.child == nil {
		return true
	}
	r.gate.holding, r.gate.waiting = news.holding, news.Paused
	r.saved = max(r.saved, news.Saved)
	if news.Last.Step > r.last.Step {
		r.last = news.Last
	}
	r.show(ctx)
	if err := r.tell(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("status not told", "run_id", r.ref.RunID, "err", err)
	}
	return true
}

func (r *runFlow) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, r.status().details())
}

// status is answered without any message from the stage: the run names the
// stage, and whoever wants the steps asks it. One signal per step would cost
// the run three events and a workflow task each, for a number that is looked
// at now and then.
func (r *runFlow) status() RunStatus {
	s := RunStatus{
		RunID: r.in.RunID, State: stateOf(&r.gate, r.doing), Child: r.childID,
		Stage: r.stage, Step: r.last.Step, NumSteps: r.plan.NumSteps(),
		SFTStep: r.sftStep, SFTSteps: r.plan.SFTSteps, Last: r.last,
		PolicyVersion: r.policy.Version, Reason: r.gate.Reason, By: r.gate.By, Since: r.gate.Since, SummaryPath: r.summary,
		Amendments: r.amendments, Priority: r.plan.Priority, Restarted: r.restarted,
	}
	if r.saved >= 0 {
		s.Checkpoint = &r.saved
	}
	if f := r.plan.Fork; f != nil {
		s.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	for i, report := range r.reports {
		note := r.notes[i]
		if why, ok := r.skips[i]; ok && note == "" {
			note = "to be " + why
		}
		s.Stages = append(s.Stages, stageStatus(report, note))
		if report.Plan.Index == r.stage {
			s.StageName = report.Plan.Name
		}
	}
	return s
}

func stageStatus(report run.StageReport, note string) StageStatus {
	s := StageStatus{Name: report.Plan.Name, Steps: report.Plan.Steps, Note: note}
	if report.Before.Label != "" {
		s.Before = outcomeOf(report.Before)
	}
	if report.After.Label != "" {
		s.After = outcomeOf(report.After)
	}
	return s
}
