package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"temper/sandbox"
)

// troublePrefix marks progress that tells of a sandbox that does not answer.
const troublePrefix = "waiting for the sandbox: "

// TroubleIn returns what an activity waits for according to the progress that
// it sends with its heartbeats, "" when it waits for nothing.
func TroubleIn(progress string) string {
	trouble, ok := strings.CutPrefix(progress, troublePrefix)
	if !ok {
		return ""
	}
	return trouble
}

// watchedExecutor remembers why the sandbox cannot be reached. Rollouts wait
// for a good while before they give up; a person should not have to.
type watchedExecutor struct {
	sandbox.Executor
	trouble *atomic.Pointer[string] // nil when the last call went through
}

// Execute implements sandbox.Executor.
func (w watchedExecutor) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := w.Executor.Execute(ctx, req)
	switch {
	case err == nil:
		w.trouble.Store(nil)
	case errors.Is(err, sandbox.ErrUnavailable):
		text := err.Error()
		w.trouble.Store(&text)
	}
	return res, err
}

// progress is what a sampling activity sends with its heartbeats.
func (r *Rollouts) progress(finished int64) string {
	if trouble := r.trouble.Load(); trouble != nil {
		return troublePrefix + *trouble
	}
	return fmt.Sprintf("%d groups finished", finished)
}
