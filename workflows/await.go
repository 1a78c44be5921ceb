package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// ErrWaiting says that a run has not begun: no control worker has taken it, or what
// it waits for goes on.
var ErrWaiting = errors.New("has not begun yet")

const (
	// awaitPause lies between two looks at a run that begins.
	awaitPause = 100 * time.Millisecond
	// awaitQuery bounds one question. A run answers none while it reads its data.
	awaitQuery = 5 * time.Second
	// preparePatience is for data that is there in a moment; other data is awaited by
	// nobody.
	preparePatience = 10 * time.Second
)

// AwaitStart waits until a run has accepted its configuration and, where that is
// quick, its data. Errors: ErrWaiting after patience, and that of the run when it has
// failed, with the kind of its fault.
func AwaitStart(ctx context.Context, c client.Client, runID string, patience time.Duration) (RunStatus, error) {
	id := RunWorkflowID(runID)
	end, quick := time.Now().Add(patience), time.Time{}
	for {
		status, err := look(ctx, c, id, min(awaitQuery, max(awaitPause, time.Until(end))))
		switch now := time.Now(); {
		case err != nil:
			return status, err
		case status.Prepared || status.Opened && status.State != StatePreparing: // an older worker knows only states
			return status, nil
		case status.Opened && quick.IsZero():
			quick = now.Add(preparePatience)
		case status.Opened && now.After(quick):
			return status, nil
		case !status.Opened && now.After(end):
			return status, fmt.Errorf("run %s %w", runID, ErrWaiting)
		}
		select {
		case <-ctx.Done():
			return status, ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

// look asks a run how it is. A run that is not there yet or does not answer has the
// zero status; one that has failed is an error.
func look(ctx context.Context, c client.Client, id string, patience time.Duration) (RunStatus, error) {
	about, err := c.DescribeWorkflowExecution(ctx, id, "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return RunStatus{}, nil
	}
	if err != nil {
		return RunStatus{}, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	switch about.GetWorkflowExecutionInfo().GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return RunStatus{State: StateDone, Opened: true, Prepared: true}, nil
	default:
		return RunStatus{}, Failure(c.GetWorkflow(ctx, id, "").Get(ctx, nil))
	}
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := queryStatus(ask, c, id)
	if err != nil && ctx.Err() == nil {
		return RunStatus{}, nil //nolint:nilerr // no worker has it, or it reads data: asked again
	}
	return status, err
}
