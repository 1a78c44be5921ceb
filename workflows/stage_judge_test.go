package workflows_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/testsuite"

	"temper/internal/rules"
	"temper/internal/run"
	"temper/workflows"
)

// callsWith are the calls so far that begin with one of some words.
func (w *world) callsWith(words ...string) []string {
	var out []string
	for _, c := range w.log() {
		for _, word := range words {
			if strings.HasPrefix(c, word) {
				out = append(out, c)
			}
		}
	}
	return out
}

// TestPlateauEndsAStage: its reason is an event, its last step is saved, forks end it
// there, the next stage begins, and every set is evaluated when it is due.
func TestPlateauEndsAStage(t *testing.T) {
	w := newWorld(4, 2)
	w.plan.EvalSets = []run.EvalSet{{Name: "aime", EverySteps: 2}, {Name: "math"}}
	w.plan.Stages[0].Judged = true
	w.plan.CheckpointEvery = 10
	w.verdicts = map[int]run.StageVerdict{3: {Kind: rules.Plateau, Reason: "nothing gained", End: true}}
	if got := newScenario(t, w).run().Policy.Version; got != 6 {
		t.Errorf("policy %d, want that of step 6", got)
	}
	want := []string{
		"eval set aime with 0", "eval set math with 0", "train 1", "judge 1", "train 2", "eval set aime with 2", "judge 2", "train 3", "judge 3", "save 3",
		"eval set aime with 3", "eval set math with 3", "train 5", "train 6", "eval set aime with 6", "eval set aime with 6", "eval set math with 6",
	}
	if d := cmp.Diff(want, w.callsWith("eval set", "train", "judge", "save")); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if !strings.Contains(strings.Join(w.events, "\n"), "until: stage hop1 ends after step 3 by plateau: nothing gained") {
		t.Errorf("events %v", w.events)
	}
	if len(w.skips) != 1 || w.skips[0].Stage != 1 || w.skips[0].After != 3 || w.skips[0].Why != "plateau after step 3: nothing gained" {
		t.Errorf("skips %+v, want forks to end stage 1 after 3 steps", w.skips)
	}
	for _, in := range w.judged {
		if in.First != 1 || in.Last {
			t.Errorf("judged %+v, want the stage from step 1 on, and no last step", in)
		}
	}
}

// TestJudgingCrossesContinueAsNew: the stage's first step stays the first, and the last one
// is judged as such.
func TestJudgingCrossesContinueAsNew(t *testing.T) {
	w := newWorld(5)
	w.plan.Stages[0].Judged = true
	w.verdicts = map[int]run.StageVerdict{5: {Kind: rules.Bound, Reason: "five steps", End: true}}
	got, n := runStage(t, w, stageInput(w, 2), func(*testsuite.TestWorkflowEnvironment) {})
	if n != 3 || len(w.judged) != 5 {
		t.Fatalf("%d executions judged %d steps, want 3 and 5", n, len(w.judged))
	}
	for i, in := range w.judged {
		if in.First != 1 || in.Last != (i == 4) {
			t.Errorf("judged %+v", in)
		}
	}
	if got.Note != "bound after step 5: five steps" || got.Cut != "" {
		t.Errorf("result %+v, want a note and no cut", got)
	}
}

// TestCollapsePauses holds the run before its next step, with the reason.
func TestCollapsePauses(t *testing.T) {
	w := newWorld(3)
	w.plan.Stages[0].Judged = true
	w.verdicts = map[int]run.StageVerdict{2: {Kind: rules.Collapse, Reason: "mean reward 0.1, was 0.9", Pause: true}}
	s := newScenario(t, w)
	var paused workflows.RunStatus
	s.env.RegisterDelayedCallback(func() {
		paused = statusOf(t, s.env)
		s.update(runWorkflow, workflows.CommandResume)
	}, days)
	if got := s.run().Policy.Version; got != 3 {
		t.Errorf("policy %d after resume, want 3", got)
	}
	if paused.State != workflows.StatePaused || paused.Reason != "collapse: mean reward 0.1, was 0.9" || paused.By != "watch" || paused.Step != 2 {
		t.Errorf("status %+v, want paused after step 2", paused)
	}
}

// TestGateRefuses: no stage begins, and the failure has the figures.
func TestGateRefuses(t *testing.T) {
	w := newWorld(2)
	w.plan.Gate = true
	w.gate = run.GateResult{Text: "0.41 of 90 answers equal the result of the last call, want at least 0.9 (sft.gate.min_copied)"}
	s := newScenario(t, w)
	s.env.ExecuteWorkflow(workflows.RLRun, run.Input{RunID: "demo"})
	if err := s.env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "0.41 of 90 answers") {
		t.Errorf("ended with %v, want the figures of the gate", err)
	}
	if w.count("train") > 0 || w.count("judge gate") != 1 {
		t.Errorf("calls %v", w.log())
	}
	w = newWorld(2)
	w.plan.Gate, w.gate = true, run.GateResult{Passed: true, Text: "0.95"}
	if got := newScenario(t, w).run().Policy.Version; got != 2 {
		t.Errorf("a run that passes ends with policy %d, want 2", got)
	}
}

// TestRefill asks for as many further problems as groups without a signal, up to its
// bound, and builds one batch of all.
func TestRefill(t *testing.T) {
	w := newWorld(1)
	w.plan.Stages[0].Refill = 3
	w.signals = 1 // of three, then of two, then of one
	newScenario(t, w).run()
	want := []string{"sample 1 with 0: p1,p2,p3", "sample 1 with 0: r1-1,r1-2", "sample 1 with 0: r2-1", "batch 1"}
	if d := cmp.Diff(want, w.callsWith("sample", "batch")); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if got := w.logs[0].Sample; got.Groups != 6 || got.Signals != 3 || got.Wall.Seconds() != 6 {
		t.Errorf("sampled %+v, want the sums over rounds", got)
	}
}
