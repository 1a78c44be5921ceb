package optimizer_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"temper/internal/config"
	"temper/trainer/optimizer"
)

func TestLearningRate(t *testing.T) {
	for _, row := range []struct {
		schedule            string
		warmup, step, total int
		decay               int
		floor, want         float64
	}{
		{"constant", 4, 1, 0, 0, 0, 0.25},
		{"constant", 4, 4, 0, 0, 0, 1},
		{"constant", 4, 5, 0, 0, 0, 1},
		{"constant", 0, 1, 0, 0, 0, 1},
		{"linear", 2, 3, 12, 0, 0, 1},
		{"linear", 2, 8, 12, 0, 0, 0.5},
		{"linear", 2, 12, 12, 0, 0, 0.1},
		{"linear", 2, 1, 12, 0, 0.5, 0.5}, // warm-up starts at zero, not at the floor
		{"linear", 2, 8, 12, 0, 0.2, 0.6},
		{"linear", 2, 12, 12, 0, 0.2, 0.28},
		{"cosine", 0, 1, 4, 0, 0, 1},
		{"cosine", 0, 3, 4, 0, 0, 0.5},
		{"cosine", 0, 4, 4, 0, 0, (1 - math.Sqrt2/2) / 2},
		{"cosine", 0, 3, 4, 0, 0.1, 0.55},
		{"cosine", 9, 5, 4, 0, 0, 5.0 / 9}, // warm-up longer than the schedule
		{"wsd", 2, 1, 10, 3, 0, 0.5},
		{"wsd", 2, 3, 10, 3, 0, 1},
		{"wsd", 2, 7, 10, 3, 0, 1}, // the last stable step
		{"wsd", 2, 8, 10, 3, 0, 0.75},
		{"wsd", 2, 9, 10, 3, 0, 0.5},
		{"wsd", 2, 10, 10, 3, 0, 0.25},
		{"wsd", 2, 9, 10, 3, 0.2, 0.6},
		{"wsd", 2, 10, 10, 30, 0, 1.0 / 31}, // a decay longer than the schedule is cut at its start
	} {
		o := config.Optimizer{LR: 1, WarmupSteps: row.warmup, Schedule: row.schedule, MinLRRatio: row.floor, DecaySteps: row.decay}
		got, err := optimizer.LearningRate(o, optimizer.Position{Step: row.step, Total: row.total})
		if err != nil || math.Abs(got-row.want) > 1e-12 {
			t.Errorf("%+v: %v, error %v", row, got, err)
		}
	}
	for _, bad := range []struct {
		schedule string
		p        optimizer.Position
		want     string
	}{
		{"constant", optimizer.Position{}, "schedule: step 0, want at least 1"},
		{"linear", optimizer.Position{Step: 5, Total: 4}, "schedule: step 5 of 4"},
		{"step", optimizer.Position{Step: 1, Total: 4}, `schedule: "step", want constant, linear, cosine or wsd`},
	} {
		if _, err := optimizer.LearningRate(config.Optimizer{Schedule: bad.schedule}, bad.p); err == nil || err.Error() != bad.want {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}

// TestLearningRateFalls: after warm-up no schedule rises, leaves the peak
// upwards, or falls below its floor.
func TestLearningRateFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 60).Draw(t, "total")
		o := config.Optimizer{
			LR: 0.5, WarmupSteps: rapid.IntRange(0, 10).Draw(t, "warmup"), MinLRRatio: rapid.Float64Range(0, 1).Draw(t, "floor"),
			DecaySteps: rapid.IntRange(1, 80).Draw(t, "decay"),
			Schedule:   rapid.SampledFrom([]string{"linear", "cosine", "wsd"}).Draw(t, "schedule"),
		}
		last := o.LR
		for step := o.WarmupSteps + 1; step <= total; step++ {
			lr, err := optimizer.LearningRate(o, optimizer.Position{Step: step, Total: total})
			if err != nil || lr > last || lr < o.LR*o.MinLRRatio || lr <= 0 {
				t.Fatalf("step %d: rate %v after %v, error %v", step, lr, last, err)
			}
			last = lr
		}
	})
}
