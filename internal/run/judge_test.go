package run_test

import (
	"fmt"
	"strings"
	"testing"

	"temper/internal/rl"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// store stores what a step came to.
func store(t *testing.T, h *runtest.Run, step int, reward float64) {
	t.Helper()
	built := run.BuiltBatch{Samples: 1, Stats: run.StepRollouts{RewardMean: reward, MeanResponseTokens: 50}}
	if _, err := artifact.PutOnce(t.Context(), h.Store, h.Layout.Step(step).BatchStats(), built); err != nil {
		t.Fatal(err)
	}
	trained := run.Trained{Metrics: rl.TrainMetrics{Entropy: 0.5, Updates: 1}}
	if _, err := artifact.PutOnce(t.Context(), h.Store, h.Layout.Step(step).TrainResult(), trained); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, h *runtest.Run, step int) run.StageVerdict {
	t.Helper()
	out, err := run.JudgeStage(t.Context(), h.Store, run.StageInput{Run: h.Ref, Stage: h.Plan.Stages[0], Step: step, First: 1, Last: step == 4})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestVerdictSticks: the first verdict of a step is the one that counts, and one whose
// predecessor was not judged reads the figures of the steps themselves.
func TestVerdictSticks(t *testing.T) {
	h := runtest.New(t, map[string]string{"stages[0].until.plateau": "{window: 2, min_gain: 0.01}"})
	for step, reward := range []float64{0.3, 0.5, 0.4, 0.4} {
		store(t, h, step+1, reward)
	}
	for step := 1; step <= 3; step++ {
		if got := ask(t, h, step); got.Kind != rules.GoOn {
			t.Errorf("step %d: %+v", step, got)
		}
	}
	want := ask(t, h, 4)
	if want.Kind != rules.Plateau || !want.End || !strings.Contains(want.Reason, "a gain of 0.0000") {
		t.Errorf("step 4: %+v", want)
	}
	for step := range 4 { // as if a crash had lost the others
		key := h.Layout.Step(step + 1).Verdict()
		if step+1 == 4 {
			continue
		}
		if err := h.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if again := ask(t, h, 4); again != want {
		t.Errorf("asked again: %+v, want %+v", again, want)
	}
	if err := h.Store.Delete(t.Context(), h.Layout.Step(4).Verdict()); err != nil {
		t.Fatal(err)
	}
	if again := ask(t, h, 4); again != want {
		t.Errorf("judged again without the verdicts before: %+v, want %+v", again, want)
	}
}

// TestCollapseNamesWhatToDo: the watch's rules are those of the configuration.
func TestCollapseNamesWhatToDo(t *testing.T) {
	h := runtest.New(t, map[string]string{"watch.collapse": "{window: 2, reward_drop: 0.5}"})
	for step, reward := range []float64{0.6, 0.6, 0.1, 0.1} {
		store(t, h, step+1, reward)
	}
	for step := 1; step <= 4; step++ {
		got := ask(t, h, step)
		if (got.Kind == rules.Collapse) != (step == 4) {
			t.Errorf("step %d: %+v", step, got)
		}
		if step == 4 && (!got.Pause || got.End || !strings.Contains(got.Reason, "mean reward 0.1, was 0.6") || !strings.Contains(got.Reason, "checkpoint")) {
			t.Errorf("step 4: %+v", got)
		}
	}
}

// TestGate: each rule alone refuses, and the text has the figures and the key.
func TestGate(t *testing.T) {
	for i, c := range []struct {
		evaluation run.Evaluation
		passes     bool
		says       string
	}{
		{run.Evaluation{SampledAccuracy: 0.3, Copied: 0.95, Copies: 40}, true, "0.950 of 40 answers"},
		{run.Evaluation{SampledAccuracy: 0.3, Copied: 0.85, Copies: 40}, false, "0.850 of 40 answers equal the result of the last call, want at least 0.9 (sft.gate.min_copied)"},
		{run.Evaluation{SampledAccuracy: 0.3}, false, "0.000 of 0 answers"},
		{run.Evaluation{SampledAccuracy: 0.1, Copied: 1, Copies: 4}, false, "the mean sampled reward is 0.100, want at least 0.15 (sft.gate.min_reward)"},
		{run.Evaluation{SampledAccuracy: 0.7, Copied: 1, Copies: 4}, false, "the mean sampled reward is 0.700, want at most 0.6 (sft.gate.max_reward)"},
	} {
		h := runtest.New(t, map[string]string{"sft.gate": "{min_copied: 0.9, min_reward: 0.15, max_reward: 0.6}"})
		got, err := run.JudgeGate(t.Context(), h.Store, run.GateInput{Run: h.Ref, Before: c.evaluation})
		if err != nil || got.Passed != c.passes || !strings.Contains(got.Text, c.says) {
			t.Errorf("%s: %+v (%v), want %v and %q", fmt.Sprint(i), got, err, c.passes, c.says)
		}
	}
}
