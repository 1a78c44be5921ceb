package workflows_test

import (
	"errors"
	"fmt"
	"testing"

	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
	"temper/workflows"
)

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
