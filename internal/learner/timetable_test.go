package learner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/learner"
)

// TestStageResets: a stage states what of the optimizer begins anew with it. One
// that says nothing keeps moments and schedule.
func TestStageResets(t *testing.T) {
	whole := [][2]int{{1, 6}, {2, 6}, {3, 6}, {4, 6}, {5, 6}, {6, 6}}
	parts := [][2]int{{1, 4}, {2, 4}, {3, 4}, {4, 4}, {1, 2}, {2, 2}}
	for name, row := range map[string]struct {
		optimizer, moments, schedule bool
		positions                    [][2]int
		resets                       []int
	}{
		"optimizer": {optimizer: true, positions: parts, resets: []int{1, 5}},
		"moments":   {moments: true, positions: whole, resets: []int{1, 5}},
		"schedule":  {schedule: true, positions: parts, resets: []int{1}},
		"nothing":   {positions: whole, resets: []int{1}},
	} {
		cfg := config.Run{Stages: []config.Stage{{Name: "first"}, {Name: "second"}}}
		cfg.Stages[0].Until.Steps, cfg.Stages[1].Until.Steps = 4, 2
		stage := &cfg.Stages[1]
		stage.ResetOptimizer, stage.ResetMoments, stage.ResetSchedule = row.optimizer, row.moments, row.schedule
		if diff := cmp.Diff(learner.Schedules(cfg), row.positions); diff != "" {
			t.Errorf("%s: positions: got -, want +\n%s", name, diff)
		}
		if diff := cmp.Diff(learner.Resets(cfg), row.resets); diff != "" {
			t.Errorf("%s: resets: got -, want +\n%s", name, diff)
		}
	}
}

// TestStageOverrides: the steps of a stage are made at its own learning rate and
// temperature, also when an amendment moves the stage.
func TestStageOverrides(t *testing.T) {
	cfg := config.Run{Stages: []config.Stage{{Name: "first"}, {Name: "second", LR: 0.5, Temperature: 0.7}}}
	cfg.Stages[0].Until.Steps, cfg.Stages[1].Until.Steps = 4, 2
	cfg.RL.Optimizer.LR, cfg.Rollout.Temperature = 0.1, 1
	cfg.Amendments = []config.Amendment{{FromStep: 3, Set: map[string]string{"stages[0].until.steps": "3"}}}
	var got []float64
	for step := 1; step <= 5; step++ {
		then := learner.StepConfig(cfg, step)
		got = append(got, then.RL.Optimizer.LR, then.Rollout.Temperature)
	}
	if diff := cmp.Diff(got, []float64{0.1, 1, 0.1, 1, 0.1, 1, 0.5, 0.7, 0.5, 0.7}); diff != "" {
		t.Errorf("learning rates and temperatures: got -, want +\n%s", diff)
	}
}
