package trainer

import (
	"fmt"
	"math"

	"temper/internal/config"
)

// Position is a place in the learning-rate schedule.
type Position struct {
	// Step counts from 1; all minibatches of a step share it.
	Step int
	// Total is the number of steps of the schedule; the constant schedule ignores it.
	Total int
}

// Names of schedules.
const (
	scheduleConstant = "constant"
	scheduleLinear   = "linear"
	scheduleCosine   = "cosine"
)

// LearningRate is linear in the step up to the end of the warm-up, where it
// reaches the peak, and then follows the schedule. Decaying schedules reach
// zero one step after the last, so that no update is spent on nothing.
func LearningRate(o config.Optimizer, p Position) (float64, error) {
	if p.Step < 1 {
		return 0, fmt.Errorf("schedule: step %d, want at least 1", p.Step)
	}
	if p.Step <= o.WarmupSteps {
		return o.LR * float64(p.Step) / float64(o.WarmupSteps), nil
	}
	if o.Schedule == scheduleConstant {
		return o.LR, nil
	}
	if p.Step > p.Total {
		return 0, fmt.Errorf("schedule: step %d of %d", p.Step, p.Total)
	}
	progress := float64(p.Step-o.WarmupSteps-1) / float64(p.Total-o.WarmupSteps) // in [0, 1)
	switch o.Schedule {
	case scheduleLinear:
		return o.LR * (1 - progress), nil
	case scheduleCosine:
		return o.LR * (1 + math.Cos(math.Pi*progress)) / 2, nil
	}
	return 0, fmt.Errorf("schedule: %q, want constant, linear or cosine", o.Schedule)
}
