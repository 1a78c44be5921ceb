package workflows_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
	"temper/workflows"
)

// TestRefusedInWords: what a person wrote is refused by name, in one line each, once,
// before anything was done; and the workflow says so when it is asked.
func TestRefusedInWords(t *testing.T) {
	for name, tt := range map[string]struct{ kind, id, input, want string }{
		"unknown key":   {workflows.TypeRun, "rl/x", `{"confg": "a.yaml"}`, "confg: unknown key; did you mean config? (known here: config, fork, placement, priority, run_id, seed, set, take_over)"},
		"a wrong form":  {workflows.TypeRun, "rl/x", `{"config": "a.yaml", "priority": "high"}`, `priority: want a whole number; have "high"`},
		"no object":     {workflows.TypeRun, "rl/x", `"a.yaml"`, `want one JSON object with run_id, config, seed, set, fork, take_over, priority, placement; have "a.yaml"`},
		"other letters": {workflows.TypeRun, "rl/größe", `{"config": "a.yaml"}`, `workflow id "rl/größe": the run is named after it, and a run id has A-Z, a-z, 0-9, '.', '_' and '-' only: start it under another workflow id, or say {"run_id": "..."}`},
		"a re-training": {workflows.TypeRetrain, "retrain/x", `{"id": "x", "dat": ["/d"]}`, "dat: unknown key; did you mean data? (known here: config, data, gate, id, set, stages)"},
		"a lonely data": {workflows.TypeRetrain, "retrain/x", `{"id": "x", "data": "/d"}`, `data: want a list, each a text; have "/d"`},
		"a stage":       {workflows.TypeStage, "s", `{"plan": {"steps": 1}}`, "RLStage is a part of a run, which starts it: start RLRun instead, for example by temper run submit"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			env := newEnv(t, w)
			env.SetStartWorkflowOptions(startOptions(tt.id))
			env.ExecuteWorkflow(tt.kind, json.RawMessage(tt.input))
			err := env.GetWorkflowError()
			var app *temporal.ApplicationError
			if !errors.As(err, &app) || app.Message() != tt.want || app.Type() != string(fault.InvalidConfig) || !app.NonRetryable() {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if calls := w.log(); len(calls) > 0 {
				t.Errorf("done before the refusal: %v", calls)
			}
			if tt.kind != workflows.TypeRun {
				return
			}
			if s := statusOf(t, env); s.State != workflows.StateFailed || s.Reason != tt.want {
				t.Errorf("status %s: %s; want failed with the reason", s.State, s.Reason)
			}
		})
	}
}

// TestReasonIsSaidOnce in the failure of a run and of a re-training, however deep
// below it happened.
func TestReasonIsSaidOnce(t *testing.T) {
	const reason = "loss is NaN in step 2"
	fail := func() *world {
		w := newWorld(2)
		w.faults["train 2"] = []error{finalError(string(fault.Diverged), reason)}
		return w
	}
	env := newEnv(t, fail())
	runDemo(env)
	_, retrainErr := runRetrain(t, fail(), "new", nil)
	for what, err := range map[string]error{"run": env.GetWorkflowError(), "re-training": retrainErr} {
		if err == nil || strings.Count(err.Error(), reason) != 1 {
			t.Errorf("%s says %v, want the reason once", what, err)
		}
	}
	if s := statusOf(t, env); s.State != workflows.StateFailed || s.Reason != reason {
		t.Errorf("status %s: %s", s.State, s.Reason)
	}
}
