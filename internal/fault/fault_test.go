package fault_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// TestOfEncoding: a number that JSON cannot hold is a policy that has diverged, also
// deep in a value; other errors stay what they are.
func TestOfEncoding(t *testing.T) {
	type result struct{ Loss float64 }
	for _, v := range []any{math.NaN(), map[string]any{"a": []result{{math.Inf(1)}}}, json.Marshaler(nested{})} {
		_, err := json.Marshal(v)
		if got := fault.OfEncoding(fmt.Errorf("encode: %w", err)); err == nil || fault.Of(got) != fault.Diverged || got.Error() != "encode: "+err.Error() {
			t.Errorf("%v: %v of kind %q, want Diverged and the same text", v, got, fault.Of(got))
		}
	}
	for _, err := range []error{nil, &json.UnsupportedTypeError{}, errors.New("cause")} {
		if got := fault.OfEncoding(err); got != err { //nolint:errorlint // the very same error
			t.Errorf("%v became %v", err, got)
		}
	}
}

// nested encodes a part of itself.
type nested struct{}

func (nested) MarshalJSON() ([]byte, error) { return json.Marshal(math.Inf(-1)) }

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
