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

// ending is how a run ends.
type ending struct{ *runFlow }

// close ends the run in one of three ways: done (or stopped early), cancelled,
// failed. Whatever happened, the run's folder says so.
func (r ending) close(ctx workflow.Context, err error) (RunResult, error) {
	r.closing = true
	defer settle(ctx)
	lodging(r).leave(ctx)
	if canceled(ctx, err) {
		r.showEnd(ctx, StateStopped, "the run was cancelled")
		r.recordEnd(ctx, "cancel", r.why, true)
		return RunResult{}, temporal.NewCanceledError()
	}
	stopped := errors.Is(err, errStop)
	if err == nil || stopped {
		err = r.finish(ctx, stopped)
	}
	if err != nil {
		err = asFailure(err)
		r.showEnd(ctx, StateFailed, failureText(err))
		r.recordEnd(ctx, "fail", r.why, false)
		return RunResult{}, err
	}
	return RunResult{
		RunID: r.plan.RunID, SummaryPath: r.summary, Policy: r.policy, Stopped: stopped, Restarted: r.restarted,
	}, nil
}

// showEnd shows an end that leaves no summary, or not that of a whole run.
func (r ending) showEnd(ctx workflow.Context, how State, why string) {
	r.ended, r.why = how, why
	r.show(ctx)
}

// finish writes the summary.
func (r ending) finish(ctx workflow.Context, stopped bool) error {
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
	err := bookkeep(ctx, "write the summary", control.FinishRun, r.finishInput(ctx, stopped), &out)
	if err != nil {
		return err
	}
	r.summary = out.SummaryPath
	return r.showState(ctx, StateDone)
}

// startNext starts the run that a restart asked for. It belongs to nobody: this
// run ends, and what becomes of the other is its own affair.
func (r ending) startNext(ctx workflow.Context) error {
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
		return logEvent(ctx, r.ref, CommandRestart, fmt.Sprintf("run %s did not start: %s", r.next.RunID, failureText(err)))
	}
	r.restarted = r.next.RunID
	return logEvent(ctx, r.ref, CommandRestart, fmt.Sprintf("run %s goes on from step %d", r.restarted, from.Step))
}

func (r ending) finishInput(ctx workflow.Context, stopped bool) activities.FinishRunInput {
	in := activities.FinishRunInput{
		Run: r.ref, Started: r.started, Ended: workflow.Now(ctx),
		SFT: r.sft, Stages: r.reports, Policy: r.policy, Stopped: stopped, Restarted: r.restarted,
	}
	if f := r.plan.Fork; f != nil {
		in.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	return in
}

// recordEnd leaves a last line in the event log, and with summary the numbers
// so far. It is best effort: a run that cannot write still ends.
func (r ending) recordEnd(ctx workflow.Context, kind, text string, summary bool) {
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
func (r ending) openAgain(ctx workflow.Context, cancelled bool) error {
	if !cancelled {
		return errors.New("nothing was opened")
	}
	var control *activities.Control
	if err := workflow.ExecuteLocalActivity(ctx, control.OpenRun, r.in).Get(ctx, &r.plan); err != nil {
		return err
	}
	r.applyPlan()
	return nil
}
