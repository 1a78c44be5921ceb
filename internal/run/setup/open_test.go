package setup_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// TestConfigInAllItsForms gives the same plan and the same frozen bytes.
func TestConfigInAllItsForms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(runtest.Recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := run.LoadConfig(run.Input{Config: runtest.Text(t, runtest.Recipe)})
	if err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	object = bytes.Replace(object, []byte(`"tool_timeout":4000000000`), []byte(`"tool_timeout":"4s"`), 1)
	seed := uint64(7)
	set := map[string]string{"stages[0].until.steps": "3", "seed": "1"} // Seed wins
	want := run.Plan{
		RunID: "demo", Seed: 7, SFTSteps: 4, CheckpointEvery: 2, SearchAttributes: true, ProgressAttributes: true,
		Stages: []run.Stage{
			{Index: 1, Name: "first", FirstStep: 1, Steps: 3},
			{Index: 2, Name: "second", FirstStep: 4, Steps: 2, Filter: true},
		},
	}
	for form, raw := range map[string]json.RawMessage{
		"path": runtest.Text(t, path), "YAML": runtest.Text(t, runtest.Recipe), "object": object,
	} {
		store := runtest.Fill(t, nil)
		got, err := runtest.Open(t, store, run.Input{RunID: "demo", Config: raw, Seed: &seed, Set: set})
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if want.Config.IsZero() {
			want.Config = got.Config
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s: got -, want +\n%s", form, diff)
		}
		data, err := blob.ReadRef(t.Context(), store, got.Config)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		frozen, err := config.Load("frozen", data, nil)
		if err != nil || frozen.Seed != 7 || frozen.Stages[0].Until.Steps != 3 {
			t.Errorf("%s: frozen as %+v (%v)", form, frozen, err)
		}
	}
}

func TestOpenRunRefuses(t *testing.T) {
	tests := map[string]struct {
		in    run.Input
		names []string
	}{
		"run id":        {run.Input{RunID: "a/b", Config: runtest.Text(t, runtest.Recipe)}, []string{`"a/b"`}},
		"all mistakes":  {run.Input{RunID: "x", Config: runtest.Text(t, "seed: -1\nrl:\n  group_sise: 4\n")}, []string{"group_sise", "seed"}},
		"an override":   {run.Input{RunID: "x", Config: runtest.Text(t, runtest.Recipe), Set: map[string]string{"rl.group_size": "99"}}, []string{"rl.group_size"}},
		"a path":        {run.Input{RunID: "x", Config: runtest.Text(t, "not-there.yaml")}, []string{"not-there.yaml"}},
		"no path":       {run.Input{RunID: "x", Config: runtest.Text(t, "demo")}, []string{`"demo"`, ".yaml"}},
		"a number":      {run.Input{RunID: "x", Config: json.RawMessage("7")}, []string{"config"}},
		"no config":     {run.Input{RunID: "x"}, []string{`"config" is missing`}},
		"a null config": {run.Input{RunID: "x", Config: json.RawMessage("null")}, []string{`"config" is missing`}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			store := runtest.Fill(t, nil)
			_, err := runtest.Open(t, store, c.in)
			runtest.WantFault(t, err, fault.InvalidConfig, c.names...)
			if left := runtest.Dump(t, store); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestRetryGetsTheFirstPlan even when the file has changed or a write was lost
// in between; another workflow does not get the id.
func TestRetryGetsTheFirstPlan(t *testing.T) {
	in := run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe)}
	other := run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe), Set: map[string]string{"seed": "8"}}
	for at := 1; at <= 4; at++ {
		store := runtest.Fill(t, nil)
		f := runtest.Fate{At: at}
		if _, err := runtest.Open(t, runtest.Mortal{Store: store, Fate: &f}, in); err == nil {
			t.Fatalf("no death %s", f.Names)
		}
		first := len(runtest.Dump(t, store)) > 0 // the plan was stored before the death
		plan, err := runtest.Open(t, store, other)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]uint64{true: 5, false: 8}[first]; plan.Seed != want {
			t.Errorf("death %s: seed %d, want %d", f.Names[at-1], plan.Seed, want)
		}
		if _, err := blob.ReadRef(t.Context(), store, plan.Config); err != nil {
			t.Errorf("death %s: %v", f.Names[at-1], err)
		}
		again, err := runtest.Open(t, store, run.Input{RunID: "demo"})
		if diff := cmp.Diff(again, plan); err != nil || diff != "" {
			t.Errorf("reopened (%v): got -, want +\n%s", err, diff)
		}
	}
}

func TestRunIDThatIsTaken(t *testing.T) {
	h := runtest.New(t, nil)
	content := runtest.Dump(t, h.Store)
	content[h.Layout.Plan()] = strings.Replace(content[h.Layout.Plan()], `"owner": "`, `"owner": "another `, 1)
	store := runtest.Fill(t, content)
	_, err := runtest.Open(t, store, run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe)})
	runtest.WantFault(t, err, fault.RunExists, store.Locate(artifact.Layout{RunID: "demo"}.Dir()))
	if diff := cmp.Diff(runtest.Dump(t, store), content); diff != "" {
		t.Errorf("the other run was touched:\n%s", diff)
	}
}
