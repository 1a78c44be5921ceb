package trainer_test

import (
	"math"
	"testing"

	"temper/internal/config"
	"temper/trainer"
)

func TestLearningRate(t *testing.T) {
	for _, row := range []struct {
		schedule            string
		warmup, step, total int
		want                float64
	}{
		{"constant", 4, 1, 0, 0.25},
		{"constant", 4, 4, 0, 1},
		{"constant", 4, 5, 0, 1},
		{"constant", 0, 1, 0, 1},
		{"linear", 2, 3, 12, 1},
		{"linear", 2, 8, 12, 0.5},
		{"linear", 2, 12, 12, 0.1},
		{"cosine", 0, 1, 4, 1},
		{"cosine", 0, 3, 4, 0.5},
		{"cosine", 0, 4, 4, (1 - math.Sqrt2/2) / 2},
		{"cosine", 9, 5, 4, 5.0 / 9}, // warm-up longer than the schedule
	} {
		got, err := trainer.LearningRate(config.Optimizer{LR: 1, WarmupSteps: row.warmup, Schedule: row.schedule},
			trainer.Position{Step: row.step, Total: row.total})
		if err != nil || math.Abs(got-row.want) > 1e-12 {
			t.Errorf("%+v: %v, error %v", row, got, err)
		}
	}
	for _, bad := range []struct {
		schedule string
		p        trainer.Position
		want     string
	}{
		{"constant", trainer.Position{}, "schedule: step 0, want at least 1"},
		{"linear", trainer.Position{Step: 5, Total: 4}, "schedule: step 5 of 4"},
		{"step", trainer.Position{Step: 1, Total: 4}, `schedule: "step", want constant, linear or cosine`},
	} {
		if _, err := trainer.LearningRate(config.Optimizer{Schedule: bad.schedule}, bad.p); err == nil || err.Error() != bad.want {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}
