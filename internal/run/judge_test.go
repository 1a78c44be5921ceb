package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// TestCollapseIsNotSilent: rewards fall to nothing and all groups are dropped. The
// run's event log says so once, and the same attempt again says the same and writes
// nothing.
func TestCollapseIsNotSilent(t *testing.T) {
	h := runtest.New(t, map[string]string{"watch.pause": "true"})
	var last run.Watched
	for n := 1; n <= 12; n++ {
		in := stepNumbers(h, n)
		in.Rollouts.InfraErrors = 0
		if n > 4 {
			in.Rollouts.RewardMean, in.Rollouts.Kept, in.Rollouts.GroupsAllCorrect = 0, 0, 0
			in.Rollouts.GroupsAllWrong = in.Rollouts.Groups
			in.Train.Metrics.Updates = 0
		}
		out, err := run.LogStep(t.Context(), h.Store, h.Config, in)
		if err != nil {
			t.Fatal(err)
		}
		before := runtest.Dump(t, h.Store)
		in.Ended = in.Ended.Add(time.Second) // a repeated task has another time
		again, err := run.LogStep(t.Context(), h.Store, h.Config, in)
		if diff := cmp.Diff(out, again) + cmp.Diff(before, runtest.Dump(t, h.Store)); err != nil || diff != "" {
			t.Fatalf("step %d again (%v):\n%s", n, err, diff)
		}
		if want := map[int]int{7: 1, 9: 1}[n]; len(out.Alerts) != want || want > 0 && !out.Alerts[0].Pause {
			t.Errorf("step %d: alerts %+v, want %d that pause the run", n, out.Alerts, want)
		}
		last = out
	}
	if len(last.Standing) != 2 {
		t.Errorf("%q stand, want the reward and the dropped groups", last.Standing)
	}
	var alerts []string
	for key, data := range runtest.Dump(t, h.Store) {
		if strings.HasPrefix(key, h.Layout.Events().Dir()+"/") && artifact.EventKind(key) == run.EventAlert {
			alerts = append(alerts, data)
		}
	}
	if len(alerts) != 2 {
		t.Errorf("%d alerts in the event log, want 2: %q", len(alerts), alerts)
	}
}

// TestRunWithoutAnUpdateSaysSo when it ends.
func TestRunWithoutAnUpdateSaysSo(t *testing.T) {
	for updates, want := range map[int]int{0: 1, 2: 0} {
		h := runtest.New(t, nil)
		for n := 1; n <= 2; n++ {
			in := stepNumbers(h, n)
			in.Rollouts.InfraErrors = 0
			in.Train.Metrics.Updates = updates
			if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
				t.Fatal(err)
			}
		}
		in := run.FinishInput{Run: h.Ref, Policy: runtest.PolicyRef(2), Ended: begin()}
		if err := run.WarnOfNoUpdate(t.Context(), h.Store, in); err != nil {
			t.Fatal(err)
		}
		got := 0
		for key, data := range runtest.Dump(t, h.Store) {
			if artifact.EventKind(key) == run.EventAlert && strings.Contains(data, "none of the 2 steps made an update") {
				got++
			}
		}
		if got != want {
			t.Errorf("%d updates a step: %d words about it, want %d", updates, got, want)
		}
	}
}

// TestWatchGoesOnBehindAStageThatEndedEarly: the numbers of steps jump there, and what
// the rules know goes on: the run has made an update, though the last stage has not.
func TestWatchGoesOnBehindAStageThatEndedEarly(t *testing.T) {
	h := runtest.New(t, nil)
	second := h.Plan.Stages[1].FirstStep
	for n := 1; n <= 2; n++ {
		in := stepNumbers(h, n)
		if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
			t.Fatal(err)
		}
	}
	if second <= 3 {
		t.Fatalf("the second stage begins at step %d: no step was left out", second)
	}
	in := stepNumbers(h, second)
	in.Stage, in.Train.Metrics.Updates = 2, 0
	if _, err := run.LogStep(t.Context(), h.Store, h.Config, in); err != nil {
		t.Fatal(err)
	}
	state, ok, err := artifact.Lookup[rules.WatchState](t.Context(), h.Store, h.Layout.Step(second).Watch())
	if err != nil || !ok || state.Updates == 0 || len(state.Walls) < 2 {
		t.Errorf("the watch knows %+v (%v, %v) after the jump, want the updates and the pace of the first stage", state, ok, err)
	}
	before := runtest.Dump(t, h.Store)
	if err := run.WarnOfNoUpdate(t.Context(), h.Store, run.FinishInput{Run: h.Ref, Policy: runtest.PolicyRef(int64(second)), Ended: begin()}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, runtest.Dump(t, h.Store)); diff != "" {
		t.Errorf("a run that made updates is said to have made none:\n%s", diff)
	}
}
