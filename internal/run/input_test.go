package run_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/fault"
	"temper/internal/run"
)

// TestInputOfAPerson: values of set may be texts, numbers, booleans and lists, and
// what is wrong is the user's to mend.
func TestInputOfAPerson(t *testing.T) {
	var in run.Input
	text := `{"config": "a.yaml", "set": {"seed": 3, "rl.roc.enabled": false, "name": "x", "rl.optimizer.lr": 1e-4, "rollout.stop": ["a", "b"]}}`
	if err := json.Unmarshal([]byte(text), &in); err != nil || in.CheckKeys() != nil {
		t.Fatal(err, in.CheckKeys())
	}
	want := run.Settings{"seed": "3", "rl.roc.enabled": "false", "name": "x", "rl.optimizer.lr": "1e-4", "rollout.stop": `["a", "b"]`}
	if diff := cmp.Diff(want, in.Set); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"confg": "a.yaml", "fork": {"run": "b"}}`), &in); err != nil {
		t.Fatal(err)
	}
	if err := in.CheckKeys(); fault.Of(err) != fault.InvalidConfig || err.Error() == "" {
		t.Errorf("error %v, want one of the user", err)
	}
}
