package ablation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/ablation"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

const base = `name: small
model: {hidden_size: 64, num_layers: 2, num_heads: 4, num_kv_heads: 2, head_dim: 16, intermediate_size: 192, max_context: 128}
sft: {data: {env: chase, levels: [1], num: 64}, batch_size: 4, steps: 2, optimizer: {lr: 1e-3}}
rl: {problems_per_step: 2, rollouts_per_problem: 8, group_size: 4, optimizer: {lr: 1e-3}}
stages: [{name: one, data: {env: chase, levels: [1], num: 32}, max_response_tokens: 56, max_turns: 3, until: {steps: 12}}]
eval: {num_problems: 4}
`

func input(change func(*ablation.Input)) ablation.Input {
	text, err := json.Marshal(base)
	if err != nil {
		panic(err)
	}
	in := ablation.Input{
		ID: "roc", Config: text, Seeds: []uint64{1, 2, 3},
		Arms: []ablation.Arm{{Name: "on"}, {Name: "off", Set: map[string]string{"rl.roc.enabled": "false"}}},
	}
	if change != nil {
		change(&in)
	}
	return in
}

// TestBadInput names every mistake before anything is stored.
func TestBadInput(t *testing.T) {
	for want, change := range map[string]func(*ablation.Input){
		"rl.rock":                      func(in *ablation.Input) { in.Arms[1].Set = map[string]string{"rl.rock": "1"} },
		"rl.group_size":                func(in *ablation.Input) { in.Arms[1].Set = map[string]string{"rl.group_size": "many"} },
		`arm "on" is named twice`:      func(in *ablation.Input) { in.Arms[1].Name = "on" },
		"seed 2 is named twice":        func(in *ablation.Input) { in.Seeds = []uint64{1, 2, 2, 2} },
		"arms: none":                   func(in *ablation.Input) { in.Arms = nil },
		"seeds: none":                  func(in *ablation.Input) { in.Seeds = nil },
		`arm "a/b"`:                    func(in *ablation.Input) { in.Arms[0].Name = "a/b" },
		"every arm has the same seeds": func(in *ablation.Input) { in.Arms[0].Set = map[string]string{"seed": "4"} },
		"are the same configuration":   func(in *ablation.Input) { in.Arms[1].Set = map[string]string{"rl.roc.enabled": "true"} },
		"1 to 30 of":                   func(in *ablation.Input) { in.ID = "-" },
		"want at most 100":             func(in *ablation.Input) { in.Seeds = make([]uint64, 51) },
		"parallel: is -1":              func(in *ablation.Input) { in.Parallel = -1 },
		"want a path ending in":        func(in *ablation.Input) { in.Config = json.RawMessage(`"recipe"`) },
		"is longer than 64 characters": func(in *ablation.Input) {
			in.ID, in.Arms[0].Name, in.Seeds = strings.Repeat("i", 30), strings.Repeat("a", 16), []uint64{math.MaxUint64}
		},
		"min_positive": func(in *ablation.Input) { in.Arms[1].Set = map[string]string{"rl.roc.min_positive": "9"} },
	} {
		store := memblob.New()
		_, err := ablation.MakePlan(t.Context(), store, input(change))
		if err == nil || !strings.Contains(err.Error(), want) || fault.Of(err) != fault.InvalidConfig {
			t.Errorf("want %q: %v (%s)", want, err, fault.Of(err))
		}
		if found, _ := store.List(t.Context(), "ablations/"); len(found) > 0 {
			t.Errorf("%s: refused, and stored %v", want, found)
		}
	}
}

// TestPlanIsStoredOnce: the same input gets the same plan, another under its id is refused
// by what differs.
func TestPlanIsStoredOnce(t *testing.T) {
	store := memblob.New()
	first, err := ablation.MakePlan(t.Context(), store, input(nil))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range first.Runs() {
		ids = append(ids, r.RunID)
	}
	if got := strings.Join(ids, " "); got != "roc-on-s1 roc-off-s1 roc-on-s2 roc-off-s2 roc-on-s3 roc-off-s3" {
		t.Errorf("runs %s: want all arms of a seed before the next", got)
	}
	if again, err := ablation.MakePlan(t.Context(), store, input(nil)); err != nil || again.Config != first.Config {
		t.Errorf("again: %v", err)
	}
	for what, change := range map[string]func(*ablation.Input){
		"other seeds":    func(in *ablation.Input) { in.Seeds = []uint64{1} },
		"other arms":     func(in *ablation.Input) { in.Arms[1].Name = "grpo" },
		"other settings": func(in *ablation.Input) { in.Set = map[string]string{"rl.group_size": "2"} },
	} {
		if _, err := ablation.MakePlan(t.Context(), store, input(change)); err == nil || !strings.Contains(err.Error(), what) || fault.Of(err) != fault.RunExists {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

// opened puts a run with a configuration into the store, as RLRun opens it.
func opened(t *testing.T, store blob.Store, runID string, cfg config.Run) {
	t.Helper()
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	layout := artifact.Layout{RunID: runID}
	plan := run.Opened{Format: run.Format, Plan: run.PlanOf(runID, cfg), ConfigYAML: string(text)}
	plan.Config = blob.RefOf(layout.Config(), text)
	_, err = blob.PutBytes(t.Context(), store, layout.Config(), text, blob.Always)
	_, err2 := blob.PutJSON(t.Context(), store, layout.Plan(), plan, blob.Always)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
}

// ended gives a run its records and its summary.
func ended(t *testing.T, store blob.Store, runID string, stopped bool, accuracy float64, step func(i int) series.Values) {
	t.Helper()
	layout := artifact.Layout{RunID: runID}
	for i := range 12 {
		rec := run.StepRecord{Step: i + 1, Stage: 1, StageName: "one", NumSteps: 12, Metrics: step(i)}
		if _, err := blob.PutJSON(t.Context(), store, layout.StepLog(i+1), rec, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	s := run.Summary{RunID: runID, Steps: 12, Stopped: stopped, Stages: []run.StageSummary{{Name: "one", AccuracyAfter: &accuracy}}}
	if _, err := blob.PutJSON(t.Context(), store, layout.Summary(), s, blob.Always); err != nil {
		t.Fatal(err)
	}
}

// TestRunOfAnotherConfiguration is never taken for one of the ablation's.
func TestRunOfAnotherConfiguration(t *testing.T) {
	store := memblob.New()
	plan, configs, err := ablation.Check(input(nil))
	if err != nil {
		t.Fatal(err)
	}
	opened(t, store, "roc-on-s2", configs["roc-on-s1"]) // another seed
	if _, err := ablation.MakePlan(t.Context(), store, input(nil)); err == nil || !strings.Contains(err.Error(), "roc-on-s2 is taken by another configuration") || fault.Of(err) != fault.RunExists {
		t.Fatalf("error %v", err)
	}
	store = memblob.New()
	if _, err := ablation.MakePlan(t.Context(), store, input(nil)); err != nil {
		t.Fatal(err)
	}
	find := func() ablation.Stored {
		have, err := ablation.Find(t.Context(), store, ablation.FindInput{ID: plan.ID, RunID: "roc-on-s2"})
		if err != nil {
			t.Fatal(err)
		}
		return have
	}
	if got := find(); got != ablation.StoredNothing {
		t.Errorf("an empty store has %s", got)
	}
	opened(t, store, "roc-on-s2", configs["roc-on-s2"])
	if got := find(); got != ablation.StoredBegun {
		t.Errorf("an opened run is %s", got)
	}
	flat := func(int) series.Values { return series.Values{series.Reward: 1} }
	ended(t, store, "roc-on-s2", true, 1, flat)
	if got := find(); got != ablation.StoredBegun {
		t.Errorf("a stopped run is %s: it goes on", got)
	}
	ended(t, store, "roc-on-s2", false, 1, flat)
	if got := find(); got != ablation.StoredDone {
		t.Errorf("a whole run is %s", got)
	}
}

// TestResult compares bands and table with sums made here: three seeds of one arm, two of the
// other, of which one has failed and one was stopped.
func TestResult(t *testing.T) {
	store := memblob.New()
	if _, err := ablation.MakePlan(t.Context(), store, input(nil)); err != nil {
		t.Fatal(err)
	}
	_, configs, err := ablation.Check(input(nil))
	if err != nil {
		t.Fatal(err)
	}
	values := func(seed, arm float64) func(int) series.Values {
		return func(i int) series.Values {
			v := series.Values{series.Reward: 0.1*seed + 0.01*float64(i), series.CorrectErrors: 0.2 * arm, series.Response: 50 + 10*seed + arm}
			if i == 0 {
				v[series.Reward] = 0 // nothing is correct: there are no calls of correct trajectories
			}
			return v
		}
	}
	for seed := range uint64(3) {
		id := fmt.Sprintf("roc-on-s%d", seed+1)
		opened(t, store, id, configs[id])
		ended(t, store, id, false, 0.5+0.1*float64(seed), values(float64(seed+1), 1))
	}
	opened(t, store, "roc-off-s1", configs["roc-off-s1"])
	ended(t, store, "roc-off-s1", false, 0.25, values(1, 2))
	opened(t, store, "roc-off-s2", configs["roc-off-s2"])
	ended(t, store, "roc-off-s2", true, 0.9, values(9, 9))
	for _, e := range []ablation.Ended{
		{ID: "roc", RunID: "roc-off-s2", State: ablation.RunStopped, Reason: "it was stopped", At: time.Unix(1, 0)},
		{ID: "roc", RunID: "roc-off-s3", State: ablation.RunFailed, Reason: "loss is NaN", At: time.Unix(1, 0)},
	} {
		if err := ablation.RecordEnd(t.Context(), store, e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ablation.Collect(t.Context(), store, "roc")
	if err != nil {
		t.Fatal(err)
	}
	on, off := got.Arms[0], got.Arms[1]
	if on.Runs != 3 || off.Runs != 1 || off.Of != 3 {
		t.Fatalf("%d and %d of %d runs", on.Runs, off.Runs, off.Of)
	}
	// rewards of step 5 are 0.14, 0.24, 0.34; Student's t of two degrees of freedom is 4.30265
	half := 4.30265 * 0.1 / math.Sqrt(3)
	near(t, "mean", on.Series[series.Reward][4].Mean, 0.24)
	near(t, "high", on.Series[series.Reward][4].High, 0.24+half)
	near(t, "low", on.Series[series.Reward][4].Low, max(0, 0.24-half))
	if b := on.Series[series.CorrectErrors]; b[0].N != 0 || b[1].N != 3 {
		t.Errorf("%d and %d seeds have errors of correct trajectories at steps 1 and 2, want none and 3", b[0].N, b[1].N)
	}
	near(t, "accuracy", on.Table["held-out accuracy"].Mean, 0.6)
	near(t, "difference", off.Against["held-out accuracy"].Mean, -0.25)
	if b := off.Against["held-out accuracy"]; b.N != 1 || !math.IsNaN(float64(b.Low)) {
		t.Errorf("one pair has the band %+v", b)
	}
	table := got.Markdown()
	for _, want := range []string{"| on | 3 of 3 |", "| off | 1 of 3 |", "| off - on | 1 pairs |", "roc-off-s2: stopped, it was stopped", "roc-off-s3: failed, loss is NaN", "0.600 ["} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	checkFiles(t, store, got)
}

// checkFiles stores the figures and reads them back.
func checkFiles(t *testing.T, store blob.Store, want ablation.Result) {
	t.Helper()
	out, err := ablation.StoreResult(t.Context(), store, "roc")
	if err != nil || out.Whole != 4 || out.Of != 6 || len(out.Missing) != 2 {
		t.Fatalf("outcome %+v, error %v", out, err)
	}
	read := func(name string) []byte {
		data, err := blob.ReadKey(context.Background(), store, artifact.Ablation{ID: "roc"}.Result(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	picture, err := png.Decode(bytes.NewReader(read("figure.png")))
	if err != nil || picture.Bounds().Dx() < 400 {
		t.Fatalf("picture: %v", err)
	}
	colours := map[[3]uint32]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			r, g, b, _ := picture.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
		}
	}
	for _, arm := range [][3]uint32{{0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}} {
		if !colours[arm] {
			t.Errorf("no line of colour %v", arm)
		}
	}
	lines := strings.Split(strings.TrimSpace(string(read("series.csv"))), "\n")
	if lines[0] != "arm,series,step,seeds,mean,low,high" || len(lines) != 1+2*3*12 {
		t.Errorf("%d lines of CSV, the first %q", len(lines), lines[0])
	}
	var back ablation.Result
	if err := json.Unmarshal(read("result.json"), &back); err != nil || len(back.Runs) != len(want.Runs) || back.Arms[0].Series[series.CorrectErrors][0].N != 0 {
		t.Errorf("result.json: %v", err)
	}
}

func near(t *testing.T, what string, got ablation.Value, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-5 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestFile reads an ablation from YAML and names the line of a mistake.
func TestFile(t *testing.T) {
	f, err := ablation.ReadFile("a.yaml", []byte("id: roc\nconfig: roc.yaml\nseeds: [1, 2]\narms:\n  - name: on\n  - {name: off, set: {rl.roc.enabled: false}}\n"))
	if err != nil || len(f.Arms) != 2 || f.Arms[1].Set["rl.roc.enabled"] != "false" || len(f.Seeds) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := ablation.ReadFile("a.yaml", []byte("id: roc\nsedes: [1]\n")); err == nil || !strings.Contains(err.Error(), "a.yaml:2") || !strings.Contains(err.Error(), "sedes") {
		t.Errorf("error %v", err)
	}
}
