package jail_test

import (
	"fmt"
	"strings"
	"testing"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// TestLeastMemory: a limit that could have no effect is refused, and the least one has
// the effect that it names.
func TestLeastMemory(t *testing.T) {
	_, in := open(t, jail.Config{})
	for _, c := range []struct {
		limit, takes int64
		want         sandbox.Status
	}{
		{1, 1, sandbox.StatusRefused},
		{jail.LeastMemory - 1, 1, sandbox.StatusRefused},
		{jail.LeastMemory, jail.LeastMemory / 4, sandbox.StatusOK},
		{jail.LeastMemory, jail.LeastMemory + jail.LeastMemory/4, sandbox.StatusMemoryLimit},
	} {
		res, err := in.Run(t.Context(), sandbox.Request{
			Code: fmt.Sprintf("print(len(b'x' * %d))", c.takes), Limits: sandbox.Limits{Memory: c.limit},
		})
		if err != nil || res.Status != c.want {
			t.Errorf("%d bytes of %d: %+v, %v, want %s", c.takes, c.limit, res, err, c.want)
		}
		if c.want == sandbox.StatusRefused && !strings.Contains(res.Reason, fmt.Sprint(jail.LeastMemory)) {
			t.Errorf("the reason does not name the least limit: %s", res.Reason)
		}
	}
}
