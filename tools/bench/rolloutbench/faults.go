package rolloutbench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"temper/internal/policy"
	"temper/sandbox"
)

// Faults are what goes wrong while the step is sampled. The zero value is nothing.
type Faults struct {
	// Engine, Lies and Sandbox: of so many calls one fails, answers something that breaks
	// the port's contract, or finds no sandbox; 0 is none.
	Engine, Lies, Sandbox int
	// Cancels is how often the step is taken away from its worker. The next attempt
	// begins with what the store holds. Each attempt ends after Calls generations.
	Cancels, Calls int
}

func (f Faults) none() bool { return f == Faults{} }

var errInjected = errors.New("injected fault")

// faults counts calls and injects what the plan says.
type faults struct {
	Faults
	generations, executions, injected atomic.Int64

	mu     sync.Mutex
	left   int // generations until the attempt is taken away; 0 is never
	cancel context.CancelCauseFunc
}

func newFaults(f Faults) *faults { return &faults{Faults: f} }

// attempt is the context of the n-th attempt.
func (f *faults) attempt(ctx context.Context, n int) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.cancel = 0, cancel
	if n <= f.Cancels {
		f.left = f.Calls
	}
	return ctx, func() { cancel(nil) }
}

// every reports whether the n-th call is one of those that fail.
func every(n int64, of int) bool { return of > 0 && n%int64(of) == 0 }

// generation says what goes wrong with a call of the engine.
func (f *faults) generation() (lie func(*policy.Generation), err error) {
	f.countDown()
	n := f.generations.Add(1)
	switch {
	case every(n, f.Engine):
		f.injected.Add(1)
		return nil, errInjected
	case every(n, f.Lies):
		return lies[f.injected.Add(1)%int64(len(lies))], nil
	}
	return nil, nil
}

// lies are answers that break the contract of policy.Engine.
var lies = []func(*policy.Generation){
	func(g *policy.Generation) { g.Tokens, g.Logprobs = nil, nil },
	func(g *policy.Generation) { g.Logprobs = g.Logprobs[1:] },
	func(g *policy.Generation) { g.Finish = "because" },
}

// countDown takes the step away when its generations are used up.
func (f *faults) countDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return
	}
	if f.left--; f.left == 0 {
		f.injected.Add(1)
		f.cancel(errInjected)
	}
}

// execution says what goes wrong with a call of the sandbox.
func (f *faults) execution() error {
	if every(f.executions.Add(1), f.Sandbox) {
		f.injected.Add(1)
		return sandbox.ErrUnavailable
	}
	return nil
}
