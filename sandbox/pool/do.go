package pool

import (
	"context"
	"fmt"

	"temper/sandbox"
)

// Do runs f under the admission of the pool, as Execute runs a program: f holds a
// slot, and gets the interpreter on which a program of req would run now. Unlike a
// program it is run once: an interpreter that dies under it is its own affair.
// Errors: those of Execute, and the error of f as it is.
func (p *Pool) Do(ctx context.Context, req sandbox.Request, f func(ctx context.Context, in Interpreter) error) error {
	if !p.enter() {
		return fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	}
	defer p.calls.Done()
	if err := p.admit(ctx); err != nil {
		return err
	}
	defer func() { <-p.slots }()
	w, in, err := p.pick(ctx)
	if err != nil {
		return err
	}
	defer p.release(w)
	if err := f(ctx, in); err != nil {
		return err
	}
	p.done.Add(1)
	return nil
}
