package sampling

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

// TestProgressTellsWhyTheSandboxIsMissed, and stops telling when it is back.
func TestProgressTellsWhyTheSandboxIsMissed(t *testing.T) {
	down := fmt.Errorf("%w: connection refused", sandbox.ErrUnavailable)
	var err error
	r := New(Config{})
	exec := watchedExecutor{&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, err
	}}, &r.trouble, new(atomic.Int64)}
	for _, step := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{down, "sandbox unavailable: connection refused"},
		{sandbox.ErrOverloaded, "sandbox unavailable: connection refused"},
		{nil, ""},
		{context.Canceled, ""},
	} {
		err = step.err
		_, _ = exec.Execute(t.Context(), sandbox.Request{ID: "x"}) // the fake's answer
		if got := TroubleIn(r.NewProgress().String()); got != step.want {
			t.Errorf("after %v: %q, want %q", step.err, got, step.want)
		}
	}
}
