// Package judge decides whether an answer is right. It owns the language of final
// answers and the rule of what a failure means; rewards belong to its callers.
//
// What a model wrote is data here. The text of an answer is parsed in Go by a parser of
// bounded depth and size, and compared by exact arithmetic or by values at random points
// with hundreds of bits. Nothing of it is ever a program, so no answer can speak its own
// verdict, and a verdict is the same on every machine. Reward functions of users run
// in the sandbox.
//
// Invariant: a Verdict is about the answer alone. Whatever goes wrong beside it is
// an error, which callers take for "not scored", never for wrong.
package judge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
)

// ErrInvalid means that no answer can be judged by a truth: it is empty or beyond a
// limit. It is not safe to retry.
var ErrInvalid = errors.New("truth is invalid")

// Method says how a verdict came about.
type Method string

// Methods.
const (
	MethodText      Method = "text"      // the texts are the same, or cannot be anything but texts
	MethodExact     Method = "exact"     // exact arithmetic
	MethodValues    Method = "values"    // values at random points, with hundreds of bits
	MethodRefused   Method = "refused"   // the answer is beyond a limit
	MethodUndecided Method = "undecided" // the answer could not be decided within the limits of a comparison
)

// Verdict is what a job found.
type Verdict struct {
	Equal  bool
	Method Method
	// Reason says in one line why an answer is not equal, where that is not plain.
	Reason string
}

// Judge asks reward functions over an executor. It is safe for concurrent use.
type Judge struct{ exec sandbox.Executor }

// New returns a Judge over exec.
func New(exec sandbox.Executor) *Judge { return &Judge{exec: exec} }

// overloadWait is the pause where an overloaded executor gives no advice.
const overloadWait = time.Second

// execute runs req, again while the executor is overloaded.
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
