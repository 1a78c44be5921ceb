package optimizer

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

// Update is the division of a step's batch into updates.
type Update struct {
	Optimizer config.Optimizer
	Position  Position
	// NumMinibatches is the number of updates; 0 means 1.
	NumMinibatches int
}

// LearningRate rises linearly with the step to its peak at the end of the warm-up. From there
// it follows the schedule
//
//	LR (floor + (1-floor) f)   with   f = 1, 1-p, (1 + cos(pi p)) / 2
//
// where p is the progress through the decay. A decaying schedule reaches its floor one
// step after the last, so that no update has a rate of zero.
func LearningRate(o config.Optimizer, p Position) (float64, error) {
	if p.Step < 1 {
		return 0, fmt.Errorf("schedule: step %d, want at least 1", p.Step)
	}
	if p.Step <= o.WarmupSteps {
		return o.LR * float64(p.Step) / float64(o.WarmupSteps), nil
	}
	if o.Schedule == config.ScheduleConstant {
		return o.LR, nil
	}
	if p.Step > p.Total {
		return 0, fmt.Errorf("schedule: step %d of %d", p.Step, p.Total)
	}
	height := 0.0
	progress := float64(p.Step-o.WarmupSteps-1) / float64(p.Total-o.WarmupSteps) // in [0, 1)
	switch o.Schedule {
	case config.ScheduleLinear:
		height = 1 - progress
	case config.ScheduleCosine:
		height = (1 + math.Cos(math.Pi*progress)) / 2
	case config.ScheduleWSD:
		// The last stable step has the peak, so the first step of the decay is below it.
		height = math.Min(1, float64(p.Total+1-p.Step)/float64(o.DecaySteps+1))
	default:
		return 0, fmt.Errorf("schedule: %q, want constant, linear, cosine or wsd", o.Schedule)
	}
	return o.LR * (o.MinLRRatio + (1-o.MinLRRatio)*height), nil
}
