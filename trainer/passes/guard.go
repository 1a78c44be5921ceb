package passes

import (
	"fmt"
	"runtime/debug"

	"github.com/gomlx/gomlx/support/exceptions"
)

// GraphError is a failure to build or run a computation graph.
type GraphError struct {
	Op    string // the operation
	Err   error
	Stack string // of the code that built the graph
}

// Error returns one line without the stack.
func (e *GraphError) Error() string { return e.Op + " graph: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *GraphError) Unwrap() error { return e.Err }

// DeviceFailed reports that the device may be unusable: open it again.
func (*GraphError) DeviceFailed() bool { return true }

// guard turns panics and errors of GoMLX into a GraphError.
func guard(op string, fn func() error) error {
	var err error
	var stack string
	panicked := exceptions.Try(func() {
		defer func() {
			if r := recover(); r != nil {
				stack = string(debug.Stack())
				panic(r)
			}
		}()
		err = fn()
	})
	if panicked != nil {
		cause, ok := panicked.(error)
		if !ok {
			cause = fmt.Errorf("%v", panicked)
		}
		return &GraphError{Op: op, Err: exhausted(cause), Stack: stack}
	}
	if err != nil {
		return &GraphError{Op: op, Err: exhausted(err), Stack: fmt.Sprintf("%+v", err)} // GoMLX's errors carry their stack
	}
	return nil
}
