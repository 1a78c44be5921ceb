package learner

import (
	"temper/internal/config"
	"temper/internal/run"
)

// ReadBatch is readBatch.
var ReadBatch = readBatch

// Schedules is the position of each RL step in its learning-rate schedule, as
// {step, total}.
func Schedules(cfg config.Run) [][2]int {
	var out [][2]int
	for n := 1; n <= run.PlanOf("", cfg).NumSteps(); n++ {
		p := timetable{cfg}.position(n)
		out = append(out, [2]int{p.Step, p.Total})
	}
	return out
}

// Resets are the RL steps before which the optimizer forgets its moments.
func Resets(cfg config.Run) []int {
	var out []int
	for n := 1; n <= run.PlanOf("", cfg).NumSteps(); n++ {
		if (timetable{cfg}).freshMoments(n) {
			out = append(out, n)
		}
	}
	return out
}

// StepConfig is the configuration that an update is made under.
func StepConfig(cfg config.Run, step int) config.Run { return timetable{cfg}.config(step) }
