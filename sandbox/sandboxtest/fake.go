// Package sandboxtest holds a fake executor and the conformance suite of the
// sandbox port. It owns the contract of every Executor; it never runs a program itself.
//
// Invariant: the fake answers the same request with the same result.
package sandboxtest

import (
	"context"
	"slices"
	"sync"

	"temper/sandbox"
)

// Fake is an Executor backed by a function. The zero value answers every
// request with StatusOK and no output.
type Fake struct {
	// Func computes the answer; it must be deterministic and safe for concurrent use.
	Func func(req sandbox.Request) (sandbox.Result, error)

	mu   sync.Mutex
	seen []sandbox.Request
}

var _ sandbox.Executor = (*Fake)(nil)

// Execute implements sandbox.Executor.
func (f *Fake) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	f.mu.Lock()
	f.seen = append(f.seen, req)
	f.mu.Unlock()
	res := sandbox.Result{Status: sandbox.StatusOK}
	if f.Func != nil {
		var err error
		if res, err = f.Func(req); err != nil {
			return sandbox.Result{}, err
		}
	}
	res.ID = req.ID
	return res, nil
}

// Requests returns the executed requests in order of arrival.
func (f *Fake) Requests() []sandbox.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}
