package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// ErrWaiting means that a run has not begun: no control worker has taken it, or the run
// that it waits for is still open.
var ErrWaiting = errors.New("has not begun yet")

const (
	// awaitPause lies between two looks at a run that begins.
	awaitPause = 100 * time.Millisecond
	// awaitQuery bounds one question. A run answers none while it reads its data.
	awaitQuery = 5 * time.Second
	// preparePatience is for data that is ready in a moment; no command waits for more.
	preparePatience = 10 * time.Second
)

// AwaitStart waits until a run has accepted its configuration and, where that is
// quick, its data. Errors: ErrWaiting after patience, and that of the run when it has
// failed, with the kind of its fault.
func AwaitStart(ctx context.Context, c client.Client, runID string, patience time.Duration) (RunStatus, error) {
	status, err := awaitStatus(ctx, c, runID, patience, func(s RunStatus) bool { return s.Opened })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return status, fmt.Errorf("run %s %w", runID, ErrWaiting)
	}
	if err != nil {
		return status, err
	}
	status, err = awaitStatus(ctx, c, runID, preparePatience, func(s RunStatus) bool {
		failing := s.State == StateFailed || s.State == StateStopped // the server has its reason in a moment
		return !failing && (s.Prepared || s.State != StatePreparing) // a run that the server has paused says no more than its state
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // much data: the run says itself what is wrong with it
	}
	return status, err
}

// endPause lies between two looks at a workflow that the server has paused.
const endPause = time.Second

// AwaitEnd waits until a workflow has ended, puts its result into out, nil for none,
// and returns its error. The SDK's own wait fails when the server pauses the workflow.
func AwaitEnd(ctx context.Context, c client.Client, workflowID string, out any) error {
	tick := time.NewTicker(endPause)
	defer tick.Stop()
	for {
		err := c.GetWorkflow(ctx, workflowID, "").Get(ctx, out)
		var ended *temporal.WorkflowExecutionError
		if err == nil || ctx.Err() != nil || errors.As(err, &ended) {
			return err
		}
		described, failed := Describe(ctx, c, workflowID, "")
		if failed != nil || described.GetWorkflowExecutionInfo().GetCloseTime() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// awaitStatus looks at a run until it is as wanted. The error wraps
// context.DeadlineExceeded after patience, with the last answer beside it.
func awaitStatus(ctx context.Context, c client.Client, runID string, patience time.Duration, wanted func(RunStatus) bool) (last RunStatus, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(awaitPause)
	defer tick.Stop()
	for {
		status, err := askRun(waiting, c, RunWorkflowID(runID))
		if waiting.Err() != nil {
			return last, waiting.Err()
		}
		if err != nil {
			return last, err
		}
		if last = status; wanted(status) {
			return status, nil
		}
		select {
		case <-waiting.Done():
			return last, waiting.Err()
		case <-tick.C:
		}
	}
}

// askRun asks a run how it is. A run that is not there yet or does not answer has the
// zero status; one that has failed is an error.
func askRun(ctx context.Context, c client.Client, id string) (RunStatus, error) {
	about, err := Describe(ctx, c, id, "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return RunStatus{}, nil
	}
	if err != nil {
		return RunStatus{}, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	switch about.GetWorkflowExecutionInfo().GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
	case enums.WORKFLOW_EXECUTION_STATUS_PAUSED:
		return frozenStatus(ctx, c, RunIDFromWorkflowID(id), about), nil
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return RunStatus{State: StateDone, Opened: true, Prepared: true}, nil
	default:
		return RunStatus{}, Failure(c.GetWorkflow(ctx, id, "").Get(ctx, nil))
	}
	ask, cancel := context.WithTimeout(ctx, awaitQuery)
	defer cancel()
	status, err := queryStatus(ask, c, id, "")
	if err != nil && ctx.Err() == nil {
		return RunStatus{}, nil //nolint:nilerr // no worker has it, or it reads data: asked again
	}
	return status, err
}
