package node

import (
	"context"
	"fmt"
	"sync"

	"temper/sandbox"
)

// callGate counts the calls inside and, once it is closed, admits no more: one place
// decides for every API and every kind of call.
type callGate struct {
	exec sandbox.Executor

	mu     sync.Mutex
	shut   bool
	inside int
	empty  chan struct{} // closed when the gate is closed and no call is inside
}

func newCallGate(exec sandbox.Executor) *callGate {
	return &callGate{exec: exec, empty: make(chan struct{})}
}

// Execute implements sandbox.Executor.
func (g *callGate) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if !g.enter() {
		return sandbox.Result{}, fmt.Errorf("%w: the node is draining", sandbox.ErrUnavailable)
	}
	defer g.leave()
	return g.exec.Execute(ctx, req)
}

func (g *callGate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

func (g *callGate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.empty)
	}
}

// close refuses calls from now on and returns how many are inside. It is called once.
func (g *callGate) close() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if g.inside == 0 {
		close(g.empty)
	}
	return g.inside
}

// wait waits until the calls inside a closed gate have left. It returns ctx.Err() if ctx
// ends first.
func (g *callGate) wait(ctx context.Context) error {
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *callGate) draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}
