package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"temper/internal/fault"
)

// TestOf: the kind survives wrapping, the outermost one counts, and an error
// without one has none.
func TestOf(t *testing.T) {
	cause := errors.New("cause")
	corrupt := fault.New(fault.Corrupt, cause)
	for _, tt := range []struct {
		name string
		err  error
		want fault.Kind
	}{
		{"nil", nil, ""},
		{"nil given a kind", fault.New(fault.Corrupt, nil), ""},
		{"plain", cause, ""},
		{"typed", corrupt, fault.Corrupt},
		{"wrapped", fmt.Errorf("read: %w", corrupt), fault.Corrupt},
		{"joined", errors.Join(cause, corrupt), fault.Corrupt},
		{"typed again", fault.Newf(fault.InvalidConfig, "key: %w", corrupt), fault.InvalidConfig},
	} {
		if got := fault.Of(tt.err); got != tt.want {
			t.Errorf("%s: kind %q, want %q", tt.name, got, tt.want)
		}
	}
	if !errors.Is(corrupt, cause) || corrupt.Error() != "cause" {
		t.Errorf("the cause is lost or the text differs: %v", corrupt)
	}
}

// TestIsUsers: only what a user can mend is the user's.
func TestIsUsers(t *testing.T) {
	for kind, want := range map[fault.Kind]bool{
		fault.InvalidConfig: true, fault.Dataset: true, fault.RunExists: true,
		fault.Diverged: false, fault.Store: false, fault.NotFound: false,
	} {
		if got := fault.IsUsers(fault.Newf(kind, "x")); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
