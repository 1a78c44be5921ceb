package trainer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// laneConfig cuts a handful of samples into many passes.
func laneConfig(lanes int) trainer.Config {
	cfg := tinyConfig()
	cfg.LaneTokens, cfg.Lanes = 64, lanes
	cfg.Loss.KL = config.KL{Coefficient: 0.1, Estimator: "k3"}
	return cfg
}

// TestLanesChangeNoBit: whatever runs side by side, scores, metrics and the state
// after updates are the same.
func TestLanesChangeNoBit(t *testing.T) {
	s := samples(19, 60, 3)
	run := func(lanes int) (metrics []rl.TrainMetrics, scores [][]float32, state checkpoint.State) {
		tr := initialised(t, laneConfig(lanes))
		if err := tr.KeepReference(); err != nil {
			t.Fatal(err)
		}
		m, err := tr.SFTStep(t.Context(), s, adam(), constant(1))
		if err != nil {
			t.Fatal(err)
		}
		metrics = append(metrics, m, update(t, tr, 2, s, 1), update(t, tr, 3, s, 3))
		if scores, err = tr.Logprobs(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return metrics, scores, snapshot(t, tr)
	}
	metrics, scores, state := run(1)
	for _, lanes := range []int{2, 5} {
		gotMetrics, gotScores, gotState := run(lanes)
		if diff := cmp.Diff(gotMetrics, metrics); diff != "" {
			t.Errorf("metrics with %d lanes, -got +want of one lane:\n%s", lanes, diff)
		}
		if !cmp.Equal(gotScores, scores) {
			t.Errorf("log-probabilities with %d lanes differ from those of one", lanes)
		}
		sameState(t, "with several lanes", gotState, state)
	}
}

// TestLanesFollowTheMemory: as many passes side by side as fit, and the step is
// refused only where one alone does not.
func TestLanesFollowTheMemory(t *testing.T) {
	cfg := laneConfig(4)
	cfg.Loss.KL = config.KL{}
	cfg.MemoryLimit = 3
	asked := 0
	cfg.StepBytes = func(_, _, passes int, _ bool) (int64, error) {
		asked = passes // the last question is the one that is answered with yes
		return int64(passes), nil
	}
	tr := initialised(t, cfg)
	update(t, tr, 1, samples(12, 60, 3), 1)
	if asked != 3 {
		t.Errorf("%d passes side by side, want the 3 that fit", asked)
	}
}
