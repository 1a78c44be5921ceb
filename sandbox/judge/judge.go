// Package judge runs reward functions of users: programs in the sandbox, with
// the same executor, queue and fairness as the programs of the policy. The model's output
// is data on their standard input.
//
// Invariant: a score depends only on the answer. Any other problem is an error,
// which callers treat as "not scored", never as wrong.
package judge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
)

// Judge runs reward functions on an executor. It is safe for concurrent use.
type Judge struct{ exec sandbox.Executor }

// New returns a Judge over exec.
func New(exec sandbox.Executor) *Judge { return &Judge{exec: exec} }

// overloadWait is the pause when an overloaded executor suggests none.
const overloadWait = time.Second

// execute runs req, and retries while the executor is overloaded.
func (j *Judge) execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	for {
		res, err := j.exec.Execute(ctx, req)
		if err == nil && res.Status == sandbox.StatusInternal {
			return sandbox.Result{}, fmt.Errorf("judge job %s: %w: %s", req.ID, sandbox.ErrUnavailable, res.Reason)
		}
		if !errors.Is(err, sandbox.ErrOverloaded) {
			if err != nil {
				err = fmt.Errorf("judge job %s: %w", req.ID, err)
			}
			return res, err
		}
		timer := time.NewTimer(sandbox.RetryAfter(err, overloadWait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return sandbox.Result{}, ctx.Err()
		}
	}
}
