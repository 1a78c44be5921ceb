package workflows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// OpenRun is an open run, as the server lists it.
type OpenRun struct {
	RunID    string
	Workflow string // its id
	// State is "" on a server without the search attribute.
	State State
	// Stage is its name, "" before the first one.
	Stage string
	// Frozen is the server's pause of the run; nil where it has none.
	Frozen *Freeze
	// Trouble is why the run is stuck; see MarkStuck.
	Trouble string
}

// OpenRuns lists the open runs, by run id. It asks the server alone, no run: a list costs
// the same however many workers are busy.
func OpenRuns(ctx context.Context, c client.Client) ([]OpenRun, error) {
	const ofRuns = "WorkflowType = '" + TypeRun + "' AND "
	executions, err := ListAll(ctx, c, ofRuns+"ExecutionStatus IN ('Running', 'Paused')")
	var unknown *serviceerror.InvalidArgument
	if errors.As(err, &unknown) { // a server that knows no such status
		executions, err = ListAll(ctx, c, ofRuns+"ExecutionStatus = 'Running'")
	}
	if err != nil {
		return nil, fmt.Errorf("list open runs: %w", err)
	}
	var out []OpenRun
	for _, e := range executions {
		run, err := openRun(e)
		if err != nil {
			return nil, err
		}
		if e.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_PAUSED {
			run.State = StatePaused
			if described, err := Describe(ctx, c, e.GetExecution().GetWorkflowId(), ""); err == nil { // else it has just ended
				run.Frozen = PausedBy(described)
			}
		}
		out = append(out, run)
	}
	slices.SortFunc(out, func(a, b OpenRun) int { return cmp.Compare(a.RunID, b.RunID) })
	return out, nil
}

// ListAll is all that the server's index finds by a query.
func ListAll(ctx context.Context, c client.Client, query string) (out []*workflow.WorkflowExecutionInfo, err error) {
	request := workflowservice.ListWorkflowExecutionsRequest{Query: query}
	for {
		found, err := c.ListWorkflow(ctx, &request)
		if err != nil {
			return nil, err
		}
		out = append(out, found.GetExecutions()...)
		if request.NextPageToken = found.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return out, nil
		}
	}
}

const (
	// statusTimeout bounds one question about the open runs.
	statusTimeout = 2 * time.Second
	// maxRunsAsked bounds the runs that are asked; for the others the server's list has to
	// do.
	maxRunsAsked = 16
)

// OpenStatuses returns the statuses of the open runs, except for one that the caller knows
// already.
func OpenStatuses(ctx context.Context, c client.Client, except string) ([]RunStatus, error) {
	list, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	open, err := OpenRuns(list, c)
	if err != nil {
		return nil, err
	}
	var out []RunStatus
	for i, run := range open {
		if run.RunID == except {
			continue
		}
		status := RunStatus{RunID: run.RunID, State: run.State, StageName: run.Stage}
		if i < maxRunsAsked {
			ask, cancel := context.WithTimeout(ctx, statusTimeout)
			if known, err := Status(ask, c, run.RunID); err == nil { // else the list must do
				status = known
			}
			cancel()
		}
		out = append(out, status)
	}
	return out, nil
}

func openRun(e *workflow.WorkflowExecutionInfo) (OpenRun, error) {
	id := e.GetExecution().GetWorkflowId()
	run := OpenRun{RunID: RunIDFromWorkflowID(id), Workflow: id}
	fields := e.GetSearchAttributes().GetIndexedFields()
	for name, into := range map[string]any{AttributeRun: &run.RunID, AttributeStatus: &run.State, AttributeStage: &run.Stage} {
		data, ok := fields[name]
		if !ok {
			continue
		}
		if err := converter.GetDefaultDataConverter().FromPayload(data, into); err != nil {
			return run, fmt.Errorf("search attribute %s of workflow %s: %w", name, e.GetExecution().GetWorkflowId(), err)
		}
	}
	if _, begun := fields[AttributeRun]; !begun && e.GetExecutionTime().AsTime().After(e.GetStartTime().AsTime()) {
		run.State = StateScheduled
	}
	return run, nil
}
