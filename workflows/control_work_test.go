package workflows_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/fault"
)

// TestDamageIsMended: an activity that meets a damaged object is called again when the
// object is made again. When it cannot be made again, both reasons end the run.
func TestDamageIsMended(t *testing.T) {
	damage := func(key string) error {
		return temporal.NewNonRetryableApplicationError("blob does not match", string(fault.Corrupt), nil, activities.Damage{Ref: blob.Ref{Key: key, SHA256: "ab"}})
	}
	w := newWorld(2)
	w.faults["sample 1 with 0: p1,p2,p3"] = []error{damage("policies/v000000/policy.json")}
	w.faults["train 2"] = []error{damage("steps/000002/samples/p"), damage("steps/000001/batch.json")}
	w.faults["eval stage 1 after with 2"] = []error{damage("policies/v000002/policy.json")}
	env := newEnv(t, w)
	runDemo(env)
	resultOf(t, env)
	var mended []string
	for _, call := range w.log() {
		if key, ok := strings.CutPrefix(call, "mend "); ok {
			mended = append(mended, key)
		}
	}
	want := []string{"policies/v000000/policy.json", "steps/000002/samples/p", "steps/000001/batch.json", "policies/v000002/policy.json"}
	if diff := cmp.Diff(mended, want); diff != "" {
		t.Errorf("made again: got -, want +\n%s", diff)
	}

	w = newWorld(1)
	w.faults["train 1"] = []error{damage("steps/000001/samples/p")}
	w.faults["mend steps/000001/samples/p"] = []error{temporal.NewNonRetryableApplicationError("no way", string(fault.Corrupt), nil)}
	env = newEnv(t, w)
	runDemo(env)
	var app *temporal.ApplicationError
	if err := env.GetWorkflowError(); !asApplication(err, &app) || app.Type() != string(fault.Corrupt) || !strings.Contains(app.Message(), "blob does not match; it was not made again: no way") {
		t.Errorf("the run ended with %v", err)
	}
}
