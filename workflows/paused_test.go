package workflows_test

import (
	"context"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"temper/internal/run"
	"temper/workflows"
)

// statusService describes every workflow by one status.
type statusService struct {
	workflowservice.WorkflowServiceClient
	status enums.WorkflowExecutionStatus
}

func (s statusService) DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: s.status}}, nil
}

type serviceOf struct {
	client.Client
	service statusService
}

func (s serviceOf) WorkflowService() workflowservice.WorkflowServiceClient { return s.service }

// TestAPausedOwnerIsOpen: a run whose workflow somebody has paused on the server is not to
// be taken over.
func TestAPausedOwnerIsOpen(t *testing.T) {
	for status, want := range map[enums.WorkflowExecutionStatus]bool{
		enums.WORKFLOW_EXECUTION_STATUS_RUNNING: true, enums.WORKFLOW_EXECUTION_STATUS_PAUSED: true, enums.WORKFLOW_EXECUTION_STATUS_FAILED: false,
	} {
		got, err := workflows.FindOwner(serviceOf{service: statusService{status: status}})(t.Context(), run.Owner{Execution: "e", Workflow: "rl/r"})
		if err != nil || got.Open != want {
			t.Errorf("%v: open %v (%v), want %v", status, got.Open, err, want)
		}
	}
}

// pausedLate is a server on which a run is paused as soon as it has answered a command.
type pausedLate struct {
	oneWorkflow
	cancelled, terminated int
}

type answered struct{ client.WorkflowUpdateHandle }

func (answered) Get(_ context.Context, out any) error {
	*out.(*string) = "the run ends now" //nolint:forcetypeassert // the only caller
	return nil
}

func (c *pausedLate) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	c.status = enums.WORKFLOW_EXECUTION_STATUS_PAUSED
	return answered{}, nil
}

func (c *pausedLate) CancelWorkflow(context.Context, string, string) error {
	c.cancelled++
	return nil
}

func (c *pausedLate) TerminateWorkflow(context.Context, string, string, string, ...any) error {
	c.terminated++
	c.status = enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	return nil
}

// TestStopNowEndsAPausedRun: one that the server has paused has not ended.
func TestStopNowEndsAPausedRun(t *testing.T) {
	c := &pausedLate{oneWorkflow: oneWorkflow{status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}}
	soon := workflows.Patience{Answer: time.Minute, End: time.Millisecond, Cancel: time.Millisecond}
	out, err := workflows.StopNow(t.Context(), c, "r", workflows.Command{}, soon, func(string) {})
	if err != nil || out.Forced == "" || c.cancelled != 1 || c.terminated != 1 {
		t.Errorf("%+v (%v), cancelled %d and terminated %d times; want the run ended by force", out, err, c.cancelled, c.terminated)
	}
}
