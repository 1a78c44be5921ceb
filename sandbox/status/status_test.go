package status_test

import (
	"testing"

	"temper/sandbox/status"
)

// TestStatuses pins the stored and sent texts and what each of them counts as.
func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status            status.Status
		text              string
		ofProgram, failed bool
	}{
		{status.OK, "ok", true, false},
		{status.Error, "error", true, true},
		{status.TimeLimit, "time_limit", true, true},
		{status.MemoryLimit, "memory_limit", true, true},
		{status.OutputLimit, "output_limit", true, true},
		{status.Killed, "killed", true, true},
		{status.Refused, "refused", true, true},
		{status.Internal, "internal", false, true},
		{status.Malformed, "malformed", false, true},
		{"of a later version", "of a later version", false, true},
	} {
		if string(c.status) != c.text || c.status.OfProgram() != c.ofProgram || c.status.Failed() != c.failed {
			t.Errorf("%q: of a program %t, failed %t; want %q, %t, %t",
				c.status, c.status.OfProgram(), c.status.Failed(), c.text, c.ofProgram, c.failed)
		}
	}
}
