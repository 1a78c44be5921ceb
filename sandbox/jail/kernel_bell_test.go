package jail_test

import (
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestBellThatDoesNotBlock: a cell may change the descriptor that its kernel waits at, and
// the cells after it do not suffer.
func TestBellThatDoesNotBlock(t *testing.T) {
	_, in := open(t, jail.Config{})
	k := kernel(t, in, sandbox.Request{})
	cellOf(t, k, code("import os; os.set_blocking(3, False); os.set_blocking = BlockingIOError = None"))
	for range 3 {
		if res := cellOf(t, k, code("6 * 7")); res.Status != sandbox.StatusOK || res.Value != "42" {
			t.Fatalf("a later cell: %+v", res)
		}
	}
}
