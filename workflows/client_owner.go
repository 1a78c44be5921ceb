package workflows

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/run"
	"temper/internal/run/setup"
)

// FindOwner asks the server for the execution that a run belongs to.
func FindOwner(c client.Client) func(context.Context, run.Owner) (setup.Execution, error) {
	return func(ctx context.Context, who run.Owner) (setup.Execution, error) {
		about, err := c.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: who.Namespace, Execution: &common.WorkflowExecution{WorkflowId: who.Workflow, RunId: who.Execution},
		})
		if isForgotten(err) {
			return forgotten(who), nil
		}
		if err != nil {
			return setup.Execution{}, fmt.Errorf("describe workflow %s: %w", who.Workflow, err)
		}
		info := about.GetWorkflowExecutionInfo()
		return setup.Execution{
			Open: isOpen(info.GetStatus()), First: info.GetFirstRunId(),
			Workflow: who.Workflow, State: inWords(info.GetStatus()),
		}, nil
	}
}

// isForgotten reports whether the server does not have what was asked for.
func isForgotten(err error) bool {
	var missing *serviceerror.NotFound
	var place *serviceerror.NamespaceNotFound
	return errors.As(err, &missing) || errors.As(err, &place)
}

func forgotten(who run.Owner) setup.Execution {
	return setup.Execution{Workflow: who.Workflow, State: "is not on the server any more"}
}

// inWords reports how an execution is, for the end of a sentence.
func inWords(s enums.WorkflowExecutionStatus) string {
	switch s {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED:
		return "is open"
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return "has completed"
	case enums.WORKFLOW_EXECUTION_STATUS_FAILED:
		return "has failed"
	case enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return "was cancelled"
	case enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "was terminated"
	case enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "has timed out"
	default:
		return "has ended"
	}
}
