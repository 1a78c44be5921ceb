package activities_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
)

// TestShardsAreOfThePlace: two control workers with different numbers leave the same
// plan in the store.
func TestShardsAreOfThePlace(t *testing.T) {
	var stored [][]byte
	for _, shards := range []int{0, 3} {
		c := &activities.Control{Store: fill(t, nil), RolloutShards: shards}
		plan, err := openRun(t, c, run.Input{RunID: "demo", Config: asString(t, testConfig)})
		if err != nil || plan.NumRolloutShards != shards {
			t.Errorf("the plan has %d shards (%v), want %d", plan.NumRolloutShards, err, shards)
		}
		data, err := blob.ReadKey(t.Context(), c.Store, artifact.Layout{RunID: "demo"}.Plan())
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, data)
	}
	if !bytes.Equal(stored[0], stored[1]) {
		t.Errorf("the stored plans differ:\n%s\n%s", stored[0], stored[1])
	}
}

// TestConfigInAllItsForms gives the same plan and the same frozen bytes.
func TestConfigInAllItsForms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte(testConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := run.LoadConfig(run.Input{Config: asString(t, testConfig)})
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
		"path": asString(t, path), "YAML": asString(t, testConfig), "object": object,
	} {
		c := &activities.Control{Store: fill(t, nil), SearchAttributes: true}
		got, err := openRun(t, c, run.Input{RunID: "demo", Config: raw, Seed: &seed, Set: set})
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if want.Config.IsZero() {
			want.Config = got.Config
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s: got -, want +\n%s", form, diff)
		}
		data, err := blob.ReadRef(t.Context(), c.Store, got.Config)
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
		"run id":        {run.Input{RunID: "a/b", Config: asString(t, testConfig)}, []string{`"a/b"`}},
		"all mistakes":  {run.Input{RunID: "x", Config: asString(t, "seed: -1\nrl:\n  group_sise: 4\n")}, []string{"group_sise", "seed"}},
		"an override":   {run.Input{RunID: "x", Config: asString(t, testConfig), Set: map[string]string{"rl.group_size": "99"}}, []string{"rl.group_size"}},
		"a path":        {run.Input{RunID: "x", Config: asString(t, "not-there.yaml")}, []string{"not-there.yaml"}},
		"no path":       {run.Input{RunID: "x", Config: asString(t, "demo")}, []string{`"demo"`, ".yaml"}},
		"a number":      {run.Input{RunID: "x", Config: json.RawMessage("7")}, []string{"config"}},
		"no config":     {run.Input{RunID: "x"}, []string{`"config" is missing`}},
		"a null config": {run.Input{RunID: "x", Config: json.RawMessage("null")}, []string{`"config" is missing`}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			store := fill(t, nil)
			_, err := openRun(t, &activities.Control{Store: store}, c.in)
			var app *temporal.ApplicationError
			if !errors.As(err, &app) || app.Type() != string(fault.InvalidConfig) || !app.NonRetryable() {
				t.Fatalf("error %v, want a final InvalidConfig", err)
			}
			for _, text := range c.names {
				if !strings.Contains(app.Message(), text) {
					t.Errorf("error %q does not name %q", app.Message(), text)
				}
			}
			if left := dump(t, store); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestRetryGetsTheFirstPlan even when the file has changed or a write was lost
// in between; another workflow does not get the id.
func TestRetryGetsTheFirstPlan(t *testing.T) {
	in := run.Input{RunID: "demo", Config: asString(t, testConfig)}
	other := run.Input{RunID: "demo", Config: asString(t, testConfig), Set: map[string]string{"seed": "8"}}
	for at := 1; at <= 4; at++ {
		store := fill(t, nil)
		f := fate{at: at}
		if _, err := openRun(t, &activities.Control{Store: mortal{store, &f}}, in); err == nil {
			t.Fatalf("no death %s", f.names)
		}
		first := len(dump(t, store)) > 0 // the plan was stored before the death
		plan, err := openRun(t, &activities.Control{Store: store}, other)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]uint64{true: 5, false: 8}[first]; plan.Seed != want {
			t.Errorf("death %s: seed %d, want %d", f.names[at-1], plan.Seed, want)
		}
		if _, err := blob.ReadRef(t.Context(), store, plan.Config); err != nil {
			t.Errorf("death %s: %v", f.names[at-1], err)
		}
		again, err := openRun(t, &activities.Control{Store: store}, run.Input{RunID: "demo"})
		if diff := cmp.Diff(again, plan); err != nil || diff != "" {
			t.Errorf("reopened (%v): got -, want +\n%s", err, diff)
		}
	}
}

func TestRunIDThatIsTaken(t *testing.T) {
	h := newHouse(t, nil)
	content := dump(t, h.store)
	content[h.layout.Plan()] = strings.Replace(content[h.layout.Plan()], `"owner": "`, `"owner": "another `, 1)
	store := fill(t, content)
	_, err := openRun(t, &activities.Control{Store: store}, run.Input{RunID: "demo", Config: asString(t, testConfig)})
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != string(fault.RunExists) || !strings.Contains(app.Message(), store.Locate(artifact.Layout{RunID: "demo"}.Dir())) {
		t.Errorf("error %v, want RunExists with the place", err)
	}
	if diff := cmp.Diff(dump(t, store), content); diff != "" {
		t.Errorf("the other run was touched:\n%s", diff)
	}
}
