// Package judge decides whether an answer is right, off the training path: its
// jobs are programs that run through the same executor, queue and fairness as
// the programs of the policy. It owns the language of final answers and the rule
// of what a failure means; rewards belong to its callers.
//
// What a model wrote is data here. The text of an answer is parsed in Go by a
// parser of bounded depth and size; what only computer algebra can decide goes to
// the sandbox as a tree of numbers, symbols and known operators on standard
// input of a program of ours. No text of a model is ever part of a program that
// decides about it, so no answer can speak its own verdict.
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

// ErrInvalid means that the job itself cannot be judged, whatever the answer: it
// has no ID, or its truth is empty or beyond a limit. It is not safe to retry.
var ErrInvalid = errors.New("judge job is invalid")

// ErrStarved is a sandbox.ErrUnavailable: the program of a job was stopped before
// it had its CPU time. Ask again under another ID: an executor may remember what
// it answered to the first.
var ErrStarved = fmt.Errorf("%w: the verifier was kept from running", sandbox.ErrUnavailable)

// Method says how a verdict came about.
type Method string

// Methods.
const (
	MethodText      Method = "text"      // the texts are the same, or cannot be anything but texts
	MethodExact     Method = "exact"     // exact arithmetic, without a call
	MethodSympy     Method = "sympy"     // computer algebra in the sandbox
	MethodFractions Method = "fractions" // exact values at random points in the sandbox, without sympy
	MethodFloat     Method = "float"     // values to 12 digits in the sandbox, without sympy
	MethodRefused   Method = "refused"   // the answer is beyond a limit
	MethodUndecided Method = "undecided" // the answer could not be decided within the limits of a job
)

// Verdict is what a job found.
type Verdict struct {
	Equal  bool
	Method Method
	// Reason says in one line why an answer is not equal, where that is not plain.
	Reason string
}

// Config bounds the jobs of a Judge. Zero fields take the stated defaults.
type Config struct {
	// Math limits the program of a Math job; 3 s of CPU, 30 s of wall time. A job
	// that runs out of wall time alone is an error: the machine was slow, not the answer.
	Math sandbox.Limits
}

// Judge runs jobs over an executor. It is safe for concurrent use.
type Judge struct {
	exec sandbox.Executor
	cfg  Config
}

// New returns a Judge over exec.
func New(exec sandbox.Executor, cfg Config) *Judge {
	if cfg.Math.CPU == 0 {
		cfg.Math.CPU = 3 * time.Second
	}
	if cfg.Math.Wall == 0 {
		cfg.Math.Wall = 30 * time.Second
	}
	if cfg.Math.Output == 0 {
		cfg.Math.Output = 4 << 10
	}
	return &Judge{exec: exec, cfg: cfg}
}

// Do judges one job. It is idempotent for the ID of the job. While the executor
// is overloaded it waits, until ctx ends. Errors: ErrInvalid,
// sandbox.ErrUnavailable (also as ErrStarved), ctx.Err().
func (j *Judge) Do(ctx context.Context, job Math) (Verdict, error) {
	if err := ctx.Err(); err != nil {
		return Verdict{}, err
	}
	return job.judge(ctx, j)
}

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
