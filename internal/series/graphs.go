package series

import "time"

// Graphs counts the compilations of an XLA plugin for a trainer during a part of a step.
type Graphs struct {
	Programs  int           `json:"programs"` // that differ, since the process began
	Compiled  int           `json:"compiled"`
	Loaded    int           `json:"loaded"`       // from disk
	Compiling time.Duration `json:"compiling_ns"` // summed over programs
}

// graphRows are the series of an XLA plugin. A step trained without one has none of them.
var graphRows = []row{
	graphRow("xla/programs", Number, Lower, "programs that the trainer has had compiled or loaded since its process began, those that differ", func(g *Graphs) float64 { return float64(g.Programs) }),
	graphRow("xla/compiled", Number, Lower, "programs compiled in the step", func(g *Graphs) float64 { return float64(g.Compiled) }),
	graphRow("xla/cache_hits", Number, Higher, "programs loaded from disk in the step, in place of being compiled", func(g *Graphs) float64 { return float64(g.Loaded) }),
	graphRow("xla/compile_s", Seconds, Lower, "time of compiling in the step, summed over programs that were compiled side by side", func(g *Graphs) float64 { return g.Compiling.Seconds() }),
}

func graphRow(name, unit string, better Direction, meaning string, of func(*Graphs) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) {
		if s.TrainingBusy == nil || s.TrainingBusy.Graphs == nil {
			return 0, false
		}
		return of(s.TrainingBusy.Graphs), true
	}}
}
