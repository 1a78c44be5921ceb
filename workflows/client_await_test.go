package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"temper/internal/fault"
	"temper/workflows"
)

// oneRun is a server with one run, which is as each look finds it, the last one for good.
type oneRun struct {
	client.Client
	looks []runLook
	n     int
}

// runLook is how a run is when it is looked at.
type runLook struct {
	missing, deaf bool
	status        enums.WorkflowExecutionStatus
	answer        workflows.RunStatus
	failure       error
}

func (c *oneRun) now() runLook { return c.looks[min(c.n, len(c.looks))-1] }

func (c *oneRun) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	c.n++
	if c.now().missing {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: c.now().status}}, nil
}

func (c *oneRun) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	if c.now().deaf {
		return nil, serviceerror.NewFailedPrecondition("no poller seen")
	}
	return encoded{c.now().answer}, nil
}

func (c *oneRun) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return ended{failure: c.now().failure}
}

type encoded struct{ status workflows.RunStatus }

func (encoded) HasValue() bool { return true }
func (e encoded) Get(into any) error {
	*into.(*workflows.RunStatus) = e.status //nolint:forcetypeassert // what is asked here
	return nil
}

type ended struct {
	client.WorkflowRun
	failure error
}

func (e ended) Get(context.Context, any) error { return e.failure }

// TestAwaitStart: a run that is not there yet or answers nobody is waited for, one
// that has failed says why with the kind of its fault.
func TestAwaitStart(t *testing.T) {
	const running, failed = enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_FAILED
	opened := workflows.RunStatus{RunID: "r", State: workflows.StatePreparing, Opened: true}
	prepared := opened
	prepared.Prepared = true
	failing := opened
	failing.State = workflows.StateFailed
	refusal := temporal.NewNonRetryableApplicationError("model.path: no such file", string(fault.InvalidConfig), nil)
	for name, tt := range map[string]struct {
		looks []runLook
		want  error
		kind  fault.Kind
		text  string
	}{
		"begins":             {[]runLook{{missing: true}, {status: running, deaf: true}, {status: running, answer: opened}, {status: running, answer: prepared}}, nil, "", ""},
		"trains already":     {[]runLook{{status: running, answer: workflows.RunStatus{State: workflows.StateSFT, Opened: true}}}, nil, "", ""},
		"is over":            {[]runLook{{status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED}}, nil, "", ""},
		"nobody serves it":   {[]runLook{{status: running, deaf: true}}, workflows.ErrWaiting, "", "run r has not begun yet"},
		"its parent goes on": {[]runLook{{missing: true}}, workflows.ErrWaiting, "", "run r has not begun yet"},
		"is refused":         {[]runLook{{status: running, deaf: true}, {status: failed, failure: refusal}}, nil, fault.InvalidConfig, "model.path: no such file"},
		"fails on its data":  {[]runLook{{status: running, answer: opened}, {status: failed, failure: temporal.NewNonRetryableApplicationError("1 problem", string(fault.Dataset), refusal)}}, nil, fault.Dataset, "1 problem"},
		"is about to fail":   {[]runLook{{status: running, answer: failing}, {status: running, answer: failing}, {status: failed, failure: refusal}}, nil, fault.InvalidConfig, "model.path: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, err := workflows.AwaitStart(t.Context(), &oneRun{looks: tt.looks}, "r", 300*time.Millisecond)
			switch {
			case tt.text == "" && (err != nil || !status.Opened):
				t.Errorf("status %+v, error %v; want an opened run", status, err)
			case tt.text != "" && (err == nil || err.Error() != tt.text || fault.Of(err) != tt.kind):
				t.Errorf("error %v of kind %q, want %q of kind %q", err, fault.Of(err), tt.text, tt.kind)
			case tt.want != nil && !errors.Is(err, tt.want):
				t.Errorf("error %v is not %v", err, tt.want)
			}
		})
	}
}

// waitedFor is a workflow whose waits end so, one after the other.
type waitedFor struct {
	client.Client
	status enums.WorkflowExecutionStatus
	ends   []error
}

func (c *waitedFor) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	end := c.ends[0]
	c.ends = c.ends[1:]
	return ended{failure: end}
}

func (c *waitedFor) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	info := &workflow.WorkflowExecutionInfo{Status: c.status}
	if c.status != enums.WORKFLOW_EXECUTION_STATUS_PAUSED {
		info.CloseTime = timestamppb.New(time.Unix(1, 0))
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
}

// TestAwaitEndOutlivesAPause: the SDK's wait fails on a workflow that the server has
// paused, which has not ended. One that has failed is told at once.
func TestAwaitEndOutlivesAPause(t *testing.T) {
	unexpected, refusal := errors.New("unexpected event type WorkflowExecutionPaused"), errors.New("refused")
	c := &waitedFor{status: enums.WORKFLOW_EXECUTION_STATUS_PAUSED, ends: []error{unexpected, nil}}
	if err := workflows.AwaitEnd(t.Context(), c, "rl/r", nil); err != nil || len(c.ends) != 0 {
		t.Errorf("paused, then done: %v, %d waits left", err, len(c.ends))
	}
	c = &waitedFor{status: enums.WORKFLOW_EXECUTION_STATUS_FAILED, ends: []error{refusal, nil}}
	if err := workflows.AwaitEnd(t.Context(), c, "rl/r", nil); !errors.Is(err, refusal) {
		t.Errorf("failed: %v, want %v", err, refusal)
	}
}

// TestAwaitStartOfAPausedRun: the server's pause is no end of the run.
func TestAwaitStartOfAPausedRun(t *testing.T) {
	c := &oneRun{looks: []runLook{{status: enums.WORKFLOW_EXECUTION_STATUS_PAUSED, deaf: true}}}
	status, err := workflows.AwaitStart(t.Context(), c, "r", time.Minute)
	if err != nil || status.State != workflows.StatePaused || status.Frozen == nil || status.By != "web UI" {
		t.Errorf("status %+v, error %v; want paused by the web UI", status, err)
	}
}
