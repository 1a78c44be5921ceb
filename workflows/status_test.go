package workflows_test

import (
	"context"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
	"temper/workflows"
)

// oneWorkflow is a server with a run, and with what its workflows answer.
type oneWorkflow struct {
	client.Client
	status  enums.WorkflowExecutionStatus
	answers map[string]workflows.RunStatus
	failure error
}

func (c *oneWorkflow) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	info := &workflow.WorkflowExecutionInfo{Status: c.status, Type: &common.WorkflowType{Name: workflows.TypeRun}}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
}

func (c *oneWorkflow) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

func (c *oneWorkflow) QueryWorkflow(_ context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
	return encoded{c.answers[id]}, nil
}

func (c *oneWorkflow) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return ended{failure: c.failure}
}

// TestStatusHasTheNewestCheckpoint: the stage under way knows it before the run does.
func TestStatusHasTheNewestCheckpoint(t *testing.T) {
	after := func(step int) *int { return &step }
	for name, tt := range map[string]struct{ run, stage *int }{
		"of the stage": {after(2), after(4)}, "the stage made none": {after(4), nil}, "the first": {nil, after(4)}, "of the run": {after(4), after(2)},
	} {
		c := &oneWorkflow{status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING, answers: map[string]workflows.RunStatus{
			"rl/r": {RunID: "r", State: workflows.StateTraining, Child: "stage", Checkpoint: tt.run}, "stage": {Checkpoint: tt.stage},
		}}
		s, err := workflows.Status(t.Context(), c, "r")
		if err != nil || s.Checkpoint == nil || *s.Checkpoint != 4 {
			t.Errorf("%s: %v, checkpoint %v, want the one after step 4", name, err, s.Checkpoint)
		}
	}
}

// TestWhatHasEndedSaysHow, to who asks and to who commands, also where the workflow had
// no say in its end.
func TestWhatHasEndedSaysHow(t *testing.T) {
	asked := workflows.RunStatus{RunID: "r", State: workflows.StateTraining, Child: "stage", Step: 3, Reason: "lunch", By: "ann"}
	for name, tt := range map[string]struct {
		status         enums.WorkflowExecutionStatus
		failure        error
		state          workflows.State
		reason, refuse string
	}{
		"done":       {enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, nil, workflows.StateDone, "lunch", "pause run r: the run is done: fork it to go on from one of its checkpoints (temper run fork)"},
		"cancelled":  {enums.WORKFLOW_EXECUTION_STATUS_CANCELED, nil, workflows.StateStopped, "the run was cancelled", "pause run r: the run was cancelled: fork it to go on from one of its checkpoints (temper run fork)"},
		"failed":     {enums.WORKFLOW_EXECUTION_STATUS_FAILED, temporal.NewApplicationError("loss is NaN", "Diverged"), workflows.StateFailed, "loss is NaN", "pause run r: the run has failed: loss is NaN"},
		"terminated": {enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, &temporal.TerminatedError{}, workflows.StateFailed, "it was terminated by an operator", "pause run r: the run has failed: it was terminated by an operator"},
	} {
		c := &oneWorkflow{status: tt.status, answers: map[string]workflows.RunStatus{"rl/r": asked}, failure: tt.failure}
		s, err := workflows.Status(t.Context(), c, "r")
		if err != nil || s.State != tt.state || s.Reason != tt.reason || s.Step != 3 || s.Child != "" {
			t.Errorf("%s: %v, status %+v", name, err, s)
		}
		_, err = workflows.Send(t.Context(), c, "r", workflows.CommandPause, workflows.Command{})
		if err == nil || err.Error() != tt.refuse || fault.Of(err) != fault.Refused {
			t.Errorf("%s: a command is answered by %v, want %q", name, err, tt.refuse)
		}
	}
}
