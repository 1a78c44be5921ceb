package pool

import (
	"context"
	"fmt"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// Do runs f under the admission of the pool, as Execute runs a program: f holds a slot and
// gets the interpreter that would run req now. Unlike a program, f runs only once, even if
// the interpreter dies. It returns the errors of Execute, and the error of f unchanged.
func (p *Pool) Do(ctx context.Context, req sandbox.Request, f func(ctx context.Context, in Interpreter) error) error {
	if !p.enter() {
		return fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	}
	defer p.calls.Done()
	pl, err := p.admit(ctx)
	if err != nil {
		return err
	}
	defer p.free(pl)
	pl.cells = true
	w, in, err := p.pick(ctx)
	if err != nil {
		return err
	}
	w, in = p.spread(w, in)
	defer p.release(w)
	if err := f(jail.OnDemand(ctx, pl.observe), in); err != nil {
		return err
	}
	p.done.Add(1)
	return nil
}

// spread moves a pick to the next of the equally busy interpreters, so that the kernels
// which f starts do not gather on the first one.
func (p *Pool) spread(w *worker, in Interpreter) (*worker, Interpreter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	for i := range p.workers {
		other := p.workers[(p.turn+i)%len(p.workers)]
		if other == w {
			break
		}
		if other.alive() && other.inFlight < w.inFlight { // w counts this pick already
			w.inFlight--
			other.inFlight++
			return other, other.interpreter
		}
	}
	return w, in
}
