package run_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s: got -, want +\n%s", path, diff)
	}
}

// begin is when the recorded run started.
func begin() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

// stepNumbers are those of step n of 10 s: 4 s of rollouts, a quarter of them waiting
// for tools, 3 s of training, 2 s of saving and 1 s of anything else.
func stepNumbers(h *runtest.Run, n int) run.StepInput {
	return run.StepInput{
		Run: h.Ref, Stage: 1, StageName: "first", Step: n, NumSteps: 6,
		Sample: run.Sampled{
			Groups: 3, Trajectories: 18, Tokens: 900, Wall: 4 * time.Second, SampleTime: 60 * time.Second, ToolTime: 20 * time.Second,
		},
		Rollouts: run.StepRollouts{
			RewardMean: 0.5, ToolErrorRate: 0.25, CorrectErrorRate: 0.125, KeptErrorRate: 0.0625, MeanResponseTokens: 50, MeanTurns: 2,
			MeanCalls: 1.5, ClipRatio: 0.1, Groups: 3, GroupsAllCorrect: 1, GroupsAllWrong: 1, Trajectories: 18, Kept: 4, InfraErrors: 9,
			PErrMean: 0.3, PFormatMean: 0.2,
		},
		Train: run.Trained{
			Metrics: rl.TrainMetrics{
				Loss: 0.01, GradNorm: 1.5, LR: 1e-3, Entropy: 0.7, ClipLow: 0.02, ClipHigh: 0.03, PPOKL: 0.004, MismatchKL: 0.005,
				LossTokens: 80, Tokens: 600, Updates: 1,
			},
			Policy: runtest.PolicyRef(int64(n)), TrainTime: 3 * time.Second, SaveTime: 2 * time.Second,
		},
		Started: begin().Add(time.Duration(n) * 10 * time.Second), Ended: begin().Add(time.Duration(n+1) * 10 * time.Second),
	}
}

// logStep records step n.
func logStep(t testing.TB, h *runtest.Run, n int) run.StepInput {
	t.Helper()
	in := stepNumbers(h, n)
	if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestStepRecord(t *testing.T) {
	h := runtest.New(t, nil)
	in := logStep(t, h, 1)
	in.Rollouts.RewardMean = 9 // a repeated activity changes nothing
	if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
		t.Fatal(err)
	}
	golden(t, "step.golden", runtest.Dump(t, h.Store)[h.Layout.Step(1).Log()])
}

// TestEventFileOfAStepMadeAgain: TensorBoard finds each step once, with the numbers of its record.
func TestEventFileOfAStepMadeAgain(t *testing.T) {
	h := runtest.New(t, map[string]string{"tracker.tensorboard": "true"})
	in := logStep(t, h, 1)
	files := func() (out []blob.Info) {
		infos, err := h.Store.List(t.Context(), h.Layout.Dir()+"/tensorboard/")
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			out = append(out, blob.Info{Key: info.Key, Size: info.Size})
		}
		return out
	}
	before := files()
	in.Ended = in.Ended.Add(time.Minute)
	if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, files()); diff != "" || len(before) != 1 {
		t.Errorf("files before -, after +\n%s", diff)
	}
}

// TestSummary of a run that was stopped in its second stage: what was not
// measured is absent.
func TestSummary(t *testing.T) {
	h := runtest.New(t, nil)
	for n := 1; n <= 3; n++ {
		logStep(t, h, n)
	}
	eval := func(label string, version int64, accuracy float64) run.Evaluation {
		return run.Evaluation{
			Stage: 1, Label: label, PolicyVersion: version, NumProblems: 4, Accuracy: accuracy, ToolErrorRate: 0.25, MeanTokens: 40, MeanTurns: 2.5,
			Wall: 2 * time.Second, SampleTime: 3 * time.Second, ToolTime: 3 * time.Second,
		}
	}
	in := run.FinishInput{
		Run: h.Ref, Started: begin(), Ended: begin().Add(100 * time.Second),
		SFT: run.SFTResult{TrainTime: 20 * time.Second},
		Stages: []run.StageReport{
			{Plan: h.Plan.Stages[0], Before: eval("before", 0, 0), After: eval("after", 2, 0.75), Final: eval("final", 3, 0.5)},
			{Plan: h.Plan.Stages[1], Before: eval("before", 0, 0.25), Filter: run.FilterResult{Problems: 6, Removed: 2, Left: 4, Wall: 5 * time.Second}},
		},
		Policy: runtest.PolicyRef(3), Stopped: true,
	}
	out, err := run.Finish(t.Context(), h.Store, in, &run.Chain{}, 3<<30)
	if err != nil || out.SummaryPath != h.Store.Locate(h.Layout.Summary()) {
		t.Fatalf("%+v (%v)", out, err)
	}
	summary := func() string {
		text := strings.Replace(runtest.Dump(t, h.Store)[h.Layout.Summary()], h.Plan.Config.SHA256, "the sha256 of the configuration", 1)
		return regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(text, "a sum") // the times of the preparation are in the seal
	}
	golden(t, "summary.golden", summary())
	if lines := runtest.ReadLines[run.StepRecord](t, h.Store, h.Layout.Metrics()); len(lines) != 3 || lines[2].Step != 3 {
		t.Errorf("series of %d steps", len(lines))
	}
	in.Ended = in.Ended.Add(time.Hour)
	if _, err := run.Finish(t.Context(), h.Store, in, &run.Chain{}, 3<<30); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.golden", summary())
}

// TestSummaryOfARunThatDidNothing says so in all its fields.
func TestSummaryOfARunThatDidNothing(t *testing.T) {
	h := runtest.New(t, nil)
	_, err := run.Finish(t.Context(), h.Store, run.FinishInput{
		Run: h.Ref, Started: begin(), Ended: begin(), Stages: []run.StageReport{{Plan: h.Plan.Stages[0]}}, Stopped: true,
	}, &run.Chain{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got run.Summary
	if err := blob.ReadJSON(t.Context(), h.Store, h.Layout.Summary(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Proof == nil || got.Proof.Link == "" || got.Proof.Seal == "" {
		t.Errorf("the summary ends with %+v, want the head of the chain", got.Proof)
	}
	got.Proof = nil
	want := run.Summary{
		RunID: "demo", Seed: 5, ConfigSHA256: h.Plan.Config.SHA256, Stopped: true, Started: begin(), Ended: begin(),
		Stages: []run.StageSummary{{Name: "first", Steps: 4}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestEventsDoNotHideEachOther: two of one moment are both kept, one told twice
// is not.
func TestEventsDoNotHideEachOther(t *testing.T) {
	h := runtest.New(t, nil)
	for _, text := range []string{"stage 1 begins", "stage 2 begins", "stage 1 begins"} {
		if err := run.LogEvent(t.Context(), h.Store, run.Event{Run: h.Ref, Time: begin(), Kind: "stage", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := h.Store.List(t.Context(), h.Layout.Events().Dir()+"/")
	if err != nil || len(infos) != 2 {
		t.Errorf("%d events (%v), want 2", len(infos), err)
	}
}

// TestRepeatedEventIsLoggedOnce: a worker that dies has its task repeated at
// another time. The same words at another place of the workflow are another event.
func TestRepeatedEventIsLoggedOnce(t *testing.T) {
	h := runtest.New(t, nil)
	count := func() int {
		infos, err := h.Store.List(t.Context(), h.Layout.Events().Dir()+"/")
		if err != nil {
			t.Fatal(err)
		}
		return len(infos)
	}
	for i, want := range []int{1, 1, 2} {
		e := run.Event{
			Run: h.Ref, Time: begin().Add(time.Duration(i) * time.Second), Kind: "stage", Text: "stage 1 begins",
			ID: []string{"RLRun/7", "RLRun/7", "RLRun/9"}[i],
		}
		if err := run.LogEvent(t.Context(), h.Store, e); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != want {
			t.Errorf("%d events after attempt %d, want %d", got, i+1, want)
		}
	}
}
