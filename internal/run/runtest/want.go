package runtest

import (
	"strings"
	"testing"

	"temper/internal/fault"
)

// WantFault checks the kind and the text of an error that no retry can mend.
func WantFault(t testing.TB, err error, kind fault.Kind, texts ...string) {
	t.Helper()
	if err == nil || fault.Of(err) != kind {
		t.Errorf("error %v of kind %q, want kind %q", err, fault.Of(err), kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %v\nlacks %q", err, text)
		}
	}
}
