package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/fault"
)

// location is where the server has a run.
type location struct {
	id string
	// execution is empty where the newest one of the workflow id is meant.
	execution string
	status    enums.WorkflowExecutionStatus
}

func (at location) open() bool { return isOpen(at.status) }

// isOpen reports whether an execution runs or is paused on the server.
func isOpen(s enums.WorkflowExecutionStatus) bool {
	return s == enums.WORKFLOW_EXECUTION_STATUS_RUNNING || s == enums.WORKFLOW_EXECUTION_STATUS_PAUSED
}

// FindRun returns the workflow id of a run. It is made from the run id, unless a
// plain client chose another: then the run id is the workflow id, or the server
// knows it as a search attribute. Errors: *serviceerror.NotFound.
func FindRun(ctx context.Context, c client.Client, runID string) (string, error) {
	at, err := locate(ctx, c, runID)
	return at.id, err
}

// maxAsked bounds the executions of one run that are asked how they are.
const maxAsked = 8

// locate prefers an execution that is open: a run may have been taken over by another
// workflow than the one that is named after it.
func locate(ctx context.Context, c client.Client, runID string) (location, error) {
	var known []location
	for _, id := range []string{RunWorkflowID(runID), runID} {
		at, ok, err := describeRun(ctx, c, id, "")
		if err != nil || at.open() {
			return at, err
		}
		if ok {
			known = append(known, at)
		}
	}
	// A server without the attribute cannot be asked that way.
	found, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query:    fmt.Sprintf("WorkflowType = '%s' AND %s = '%s'", TypeRun, AttributeRun, strings.ReplaceAll(runID, "'", "")),
		PageSize: maxAsked,
	})
	if err != nil {
		found = nil
	}
	for _, e := range found.GetExecutions() {
		at, ok, err := describeRun(ctx, c, e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()) // the list is late
		if err != nil || at.open() {
			return at, err
		}
		if ok {
			known = append(known, at)
		}
	}
	if len(known) > 0 {
		return known[0], nil
	}
	return location{}, serviceerror.NewNotFoundf("no workflow of run %s", runID)
}

// describeRun asks for one execution of a run, the newest one where none is named. ok
// is false where there is none.
func describeRun(ctx context.Context, c client.Client, id, execution string) (at location, ok bool, err error) {
	about, err := Describe(ctx, c, id, execution)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return location{}, false, nil
	}
	info := about.GetWorkflowExecutionInfo()
	if err != nil || info.GetType().GetName() != TypeRun {
		return location{}, false, err
	}
	return location{id: id, execution: execution, status: info.GetStatus()}, true, nil
}

// ended completes what a run said last by how the server ended it.
func (at location) ended(ctx context.Context, c client.Client, runID string, s RunStatus) RunStatus {
	s.RunID, s.Child, s.ETASeconds = runID, "", 0
	switch at.status {
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		s.State = StateDone
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		s.State, s.Reason, s.By = StateStopped, "the run was cancelled", ""
	default:
		s.State, s.Reason, s.By = StateFailed, at.why(ctx, c), ""
	}
	return s
}

// why is why the run has ended, as the server knows it.
func (at location) why(ctx context.Context, c client.Client) string {
	err := c.GetWorkflow(ctx, at.id, at.execution).Get(ctx, nil)
	if err == nil {
		return ""
	}
	return failureText(err)
}

// tooLate refuses a command to a run that has ended.
func (at location) tooLate(ctx context.Context, c client.Client) error {
	switch at.status {
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return fault.Newf(fault.Refused, "the run is done: fork it to go on from one of its checkpoints (temper run fork)")
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return fault.Newf(fault.Refused, "the run was cancelled: fork it to go on from one of its checkpoints (temper run fork)")
	default:
		return fault.Newf(fault.Refused, "the run has failed: %s", at.why(ctx, c))
	}
}
