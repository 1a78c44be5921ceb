package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// runEnd ends a run and leaves its last records.
type runEnd struct {
	in      run.Input
	started time.Time
	at      *progress
	gate    *gate
	state   *runState
	room    *clusterRoom
	// next is the run that a restart has asked for; nil for none.
	next *run.Input
}

// close ends the run in one of three ways: done (or stopped early), cancelled, failed. In
// every case it writes the end into the run's folder.
func (r *runEnd) close(ctx workflow.Context, err error) (RunResult, error) {
	r.state.closing = true
	defer awaitHandlers(ctx)
	r.room.leave(ctx)
	if canceled(ctx, err) {
		r.state.end(ctx, StateStopped, "the run was cancelled")
		r.recordEnd(ctx, "cancel", r.state.why, true)
		return RunResult{}, temporal.NewCanceledError()
	}
	stopped := errors.Is(err, errStop)
	if err == nil || stopped {
		err = r.finish(ctx, stopped)
	}
	if err != nil {
		err = asFailure(err)
		r.state.end(ctx, StateFailed, failureText(err))
		r.recordEnd(ctx, "fail", r.state.why, false)
		return RunResult{}, err
	}
	return RunResult{
		RunID: r.at.plan.RunID, SummaryPath: r.state.summary, Policy: r.at.policy, Stopped: stopped, Restarted: r.state.restarted,
	}, nil
}

// finish writes the summary.
func (r *runEnd) finish(ctx workflow.Context, stopped bool) error {
	if stopped {
		if err := logEvent(ctx, r.at.ref, "stop", "the run was stopped"+byWhom(r.gate.Reason, r.gate.By)); err != nil {
			return err
		}
		if err := r.startNext(ctx); err != nil {
			return err
		}
	}
	var control *activities.Control
	var out run.FinishResult
	err := doControl(ctx, "write the summary", control.FinishRun, r.finishInput(ctx, stopped), &out)
	if err != nil {
		return err
	}
	r.state.summary = out.SummaryPath
	return r.state.set(ctx, StateDone)
}

// startNext starts the run that a restart asked for. It is no child of
// this run: this one ends, and the other runs alone.
func (r *runEnd) startNext(ctx workflow.Context) error {
	if r.next == nil {
		return nil
	}
	from := r.next.Fork
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: RunWorkflowID(r.next.RunID), TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary: fmt.Sprintf("run %s, from step %d of run %s", r.next.RunID, from.Step, from.RunID), Priority: priority(r.next.Priority),
	})
	if err := workflow.ExecuteChildWorkflow(ctx, RLRun, *r.next).GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		// This run ends in any case, and records that the other did not start.
		return logEvent(ctx, r.at.ref, CommandRestart, fmt.Sprintf("run %s did not start: %s", r.next.RunID, failureText(err)))
	}
	r.state.restarted = r.next.RunID
	return logEvent(ctx, r.at.ref, CommandRestart, fmt.Sprintf("run %s goes on from step %d", r.state.restarted, from.Step))
}

func (r *runEnd) finishInput(ctx workflow.Context, stopped bool) activities.FinishRunInput {
	in := activities.FinishRunInput{
		Run: r.at.ref, Started: r.started, Ended: workflow.Now(ctx),
		SFT: r.at.sft, Stages: r.at.reports, Policy: r.at.policy, Stopped: stopped, Restarted: r.state.restarted,
	}
	if f := r.at.plan.Fork; f != nil {
		in.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	return in
}

// recordEnd leaves a last line in the event log, and with summary the numbers
// so far. It is best effort: a run that cannot write still ends.
func (r *runEnd) recordEnd(ctx workflow.Context, kind, text string, summary bool) {
	ctx, cancel := finalWrite(ctx, "last words: "+kind)
	defer cancel()
	var control *activities.Control
	if r.at.ref.RunID == "" {
		// A cancellation met OpenRun, which may have claimed the run id: it is asked
		// again, so that what is in the store has an end. A refused run has nothing.
		if err := r.openAgain(ctx, summary); err != nil {
			workflow.GetLogger(ctx).Warn("run ends without a folder", "run_id", r.in.RunID, "err", err)
			return
		}
	}
	err := workflow.ExecuteLocalActivity(ctx, control.LogEvent, run.Event{
		Run: r.at.ref, Time: workflow.Now(ctx), Kind: kind, Text: text,
	}).Get(ctx, nil)
	if err == nil && summary {
		err = workflow.ExecuteLocalActivity(ctx, control.FinishRun, r.finishInput(ctx, true)).Get(ctx, nil)
	}
	if err != nil {
		workflow.GetLogger(ctx).Warn("end of run not recorded", "run_id", r.at.ref.RunID, "err", err)
	}
}

// openAgain learns the plan for a run that is cancelled.
func (r *runEnd) openAgain(ctx workflow.Context, cancelled bool) error {
	if !cancelled {
		return errors.New("nothing was opened")
	}
	var control *activities.Control
	if err := workflow.ExecuteLocalActivity(ctx, control.OpenRun, r.in).Get(ctx, &r.at.plan); err != nil {
		return err
	}
	r.at.applyPlan()
	return nil
}
