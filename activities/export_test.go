package activities

import "temper/internal/config"

// What tests of the package look at from outside.
var (
	ToTemporal      = toTemporal
	Permanent       = permanent
	LoadConfig      = loadConfig
	Watch           = watch
	Schedules       = schedules
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

// StallTimeout and HeartbeatInterval are the bounds of Watch.
const (
	StallTimeout      = stallTimeout
	HeartbeatInterval = heartbeatInterval
)
