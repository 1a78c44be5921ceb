package activities

import "temper/internal/config"

// What tests of the package look at from outside.
var (
	ToTemporal      = toTemporal
	Permanent       = permanent
	LoadConfig      = loadConfig
	Watch           = watch
	Schedules       = schedules
	Resets          = resets
	TrajectoryLines = trajectoryLines
)

// schedules is the position of each RL step in its learning-rate schedule, as
// {step, total}.
func schedules(cfg config.Run) [][2]int {
	s := &session{runContext: &runContext{cfg: cfg}}
	var out [][2]int
	for n := 1; n <= planOf("", cfg).NumSteps(); n++ {
		p := s.schedule(n)
		out = append(out, [2]int{p.Step, p.Total})
	}
	return out
}

// resets are the RL steps before which the optimizer forgets its moments.
func resets(cfg config.Run) []int {
	s := &session{runContext: &runContext{cfg: cfg}}
	var out []int
	for n := 1; n <= planOf("", cfg).NumSteps(); n++ {
		if s.freshMoments(n) {
			out = append(out, n)
		}
	}
	return out
}

// StallTimeout and HeartbeatInterval are the bounds of Watch.
const (
	StallTimeout      = stallTimeout
	HeartbeatInterval = heartbeatInterval
)
