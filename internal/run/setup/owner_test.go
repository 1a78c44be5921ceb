package setup_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
)

// executions is a server by the ids of its executions.
type executions map[string]setup.Execution

func (e executions) claim(id, workflow string) setup.Claim {
	return setup.Claim{Owner: id, Workflow: workflow, Namespace: "n", At: time.Unix(9, 0), Find: func(_ context.Context, who run.Owner) (setup.Execution, error) {
		if who.Execution == "unreachable" {
			return setup.Execution{}, errors.New("connection refused")
		}
		found := e[who.Execution]
		if found.State == "" {
			found.State = "is not on the server any more"
		}
		found.Workflow = who.Workflow
		return found, nil
	}}
}

// TestWhoARunBelongsTo: a run belongs to the execution that opened it until that has
// ended, and goes over to another one by its chain or by an explicit order alone.
func TestWhoARunBelongsTo(t *testing.T) {
	failed := setup.Execution{First: "e1", State: "has failed"}
	for name, tt := range map[string]struct {
		first   setup.Execution // of the owner e1 of workflow rl/demo
		second  setup.Execution // of the claimer e2
		by      string          // its workflow
		in      run.Input
		refused string // part of the refusal, "" where it goes on
	}{
		"open, another workflow":  {setup.Execution{Open: true}, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{}, "workflow rl/demo (execution e1), which is still open: wait for its end or stop it (temper run stop demo)"},
		"open, by order":          {setup.Execution{Open: true}, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{TakeOver: true}, "still open"},
		"open, a new run":         {setup.Execution{Open: true}, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{Config: runtest.Text(t, runtest.Recipe)}, "exists already at "},
		"ended, another workflow": {failed, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{}, `which has failed: say {"run_id": "demo", "take_over": true} to go on with it, or start workflow rl/demo again`},
		"ended, by order":         {failed, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{TakeOver: true}, ""},
		"ended, same workflow":    {failed, setup.Execution{Open: true, First: "e2"}, "rl/demo", run.Input{}, ""},
		"ended, a new run":        {failed, setup.Execution{Open: true, First: "e2"}, "rl/demo", run.Input{Config: runtest.Text(t, runtest.Recipe)}, "exists already at "},
		"a reset":                 {failed, setup.Execution{Open: true, First: "e1"}, "rl/demo", run.Input{Config: runtest.Text(t, runtest.Recipe)}, ""},
		"forgotten":               {setup.Execution{}, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{}, "which is not on the server any more"},
		"forgotten, by order":     {setup.Execution{}, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{TakeOver: true}, ""},
		"order with a config":     {failed, setup.Execution{Open: true, First: "e2"}, "thief", run.Input{TakeOver: true, Config: runtest.Text(t, runtest.Recipe)}, "leave out config"},
		"with settings":           {failed, setup.Execution{Open: true, First: "e2"}, "rl/demo", run.Input{Set: run.Settings{"seed": "2"}}, "goes on as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			store := runtest.Fill(t, nil)
			server := executions{"e1": tt.first, "e2": tt.second}
			plan, err := setup.Open(t.Context(), store, run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe)}, server.claim("e1", "rl/demo"))
			if err != nil {
				t.Fatal(err)
			}
			before := runtest.Dump(t, store)
			tt.in.RunID = "demo"
			for range 2 { // a retry gets the same answer
				again, err := setup.Open(t.Context(), store, tt.in, server.claim("e2", tt.by))
				if tt.refused == "" && (err != nil || again.Config != plan.Config) {
					t.Fatalf("%v, plan %+v", err, again)
				}
				if tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || !fault.IsUsers(err)) {
					t.Fatalf("error %v, want %q", err, tt.refused)
				}
			}
			checkOwner(t, store, before, tt.refused == "")
		})
	}
}

// checkOwner: a take-over is recorded once, a refusal has changed nothing.
func checkOwner(t *testing.T, store blob.Store, before map[string]string, taken bool) {
	t.Helper()
	after := runtest.Dump(t, store)
	var events []string
	for key, text := range after {
		if strings.Contains(key, "/events/") {
			events = append(events, text)
		}
	}
	if !taken {
		if len(after) != len(before) {
			t.Errorf("a refusal wrote: %d keys, want %d", len(after), len(before))
		}
		return
	}
	if len(events) != 1 || !strings.Contains(events[0], "takeover") || !strings.Contains(events[0], "execution e1") {
		t.Errorf("events %q, want one take-over that names the owner", events)
	}
	if after[artifact.Layout{RunID: "demo"}.Plan()] != before[artifact.Layout{RunID: "demo"}.Plan()] {
		t.Error("the plan was written again")
	}
}

// TestFormerOwnerIsOneOfOthers: who has lost a run does not get it back by being asked
// again, and a server that does not answer gives it to nobody.
func TestFormerOwnerIsOneOfOthers(t *testing.T) {
	store := runtest.Fill(t, nil)
	server := executions{"e1": {First: "e1", State: "has failed"}, "e2": {Open: true, First: "e2"}}
	open := func(id, workflow string, in run.Input) error {
		in.RunID = "demo"
		_, err := setup.Open(t.Context(), store, in, server.claim(id, workflow))
		return err
	}
	if err := open("e1", "rl/demo", run.Input{Config: runtest.Text(t, runtest.Recipe)}); err != nil {
		t.Fatal(err)
	}
	if err := open("unreachable", "thief", run.Input{TakeOver: true}); err == nil || fault.Of(err) != "" {
		t.Errorf("error %v, want one that is retried", err)
	}
	if err := open("e2", "other", run.Input{TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	server["e3"] = setup.Execution{Open: true, First: "e3"}
	if err := open("e3", "rl/demo", run.Input{}); fault.Of(err) != fault.RunExists || !strings.Contains(err.Error(), "workflow other (execution e2), which is still open") {
		t.Errorf("error %v, want a refusal that names the owner of today", err)
	}
}

// TestAVisitorTakesNothing: an evaluation reads a run that somebody else makes.
func TestAVisitorTakesNothing(t *testing.T) {
	h := runtest.New(t, nil)
	before := runtest.Dump(t, h.Store)
	by := executions{}.claim("e2", "rl/demo/eval-last")
	by.Visits = true
	if _, err := setup.Open(t.Context(), h.Store, run.Input{RunID: "demo"}, by); err != nil {
		t.Fatal(err)
	}
	if after := runtest.Dump(t, h.Store); len(after) != len(before) {
		t.Error("a visit wrote something")
	}
}
