package workflows_test

import (
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
	"temper/workflows"
)

// TestFailureText: what ends a run is named in words, whoever ended it.
func TestFailureText(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{temporal.NewApplicationError("loss is NaN", "Diverged", errors.New("cause")), "loss is NaN"},
		{temporal.NewHeartbeatTimeoutError(), "the workflow timed out (Heartbeat)"},
		{fmt.Errorf("activity error (type: TrainStep): %w", temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil)), "the workflow timed out (StartToClose)"},
		{temporal.NewCanceledError(), "it was cancelled"},
		{fmt.Errorf("child workflow execution error (type: RLStage): %w", &temporal.TerminatedError{}), "it was terminated by an operator"},
		{errors.New("disk full"), "disk full"},
	} {
		if got := workflows.FailureText(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestFailure: what a client shows of a failed workflow has the message and the kind,
// and no types of Go or of Temporal. What is no failure of a workflow stays.
func TestFailure(t *testing.T) {
	plain := errors.New("connection refused")
	cause := temporal.NewApplicationError("rl.group_size: is 9", "wrapError")
	for _, tt := range []struct {
		err  error
		text string
		kind fault.Kind
	}{
		{temporal.NewNonRetryableApplicationError("rl.group_size: is 9", string(fault.InvalidConfig), nil), "rl.group_size: is 9", fault.InvalidConfig},
		{temporal.NewNonRetryableApplicationError("rl.group_size: is 9", string(fault.InvalidConfig), cause), "rl.group_size: is 9", fault.InvalidConfig},
		{fmt.Errorf("workflow execution error (type: RLRun, workflowID: rl/a): %w", cause), "rl.group_size: is 9", "wrapError"},
		{plain, "connection refused", ""},
	} {
		got := workflows.Failure(tt.err)
		if got.Error() != tt.text || fault.Of(got) != tt.kind {
			t.Errorf("%v: %q of kind %q, want %q of kind %q", tt.err, got, fault.Of(got), tt.text, tt.kind)
		}
	}
	if err := workflows.Failure(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
