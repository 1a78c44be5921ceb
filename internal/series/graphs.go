package series

import "time"

// Graphs is what an XLA plugin compiled for a trainer during a part of a step.
type Graphs struct {
	Programs  int           `json:"programs"` // that differ, since the process began
	Compiled  int           `json:"compiled"`
	Loaded    int           `json:"loaded"`       // from disk
	Compiling time.Duration `json:"compiling_ns"` // summed over programs
}

// graphRows are left out of a step that no XLA plugin trained.
var graphRows = []row{
	{Metric{"xla/programs", Number, Lower, "programs that the trainer has had compiled or loaded since its process began, those that differ"}, ofGraphs(func(g *Graphs) float64 { return float64(g.Programs) })},
	{Metric{"xla/compiled", Number, Lower, "programs compiled in the step"}, ofGraphs(func(g *Graphs) float64 { return float64(g.Compiled) })},
	{Metric{"xla/cache_hits", Number, Higher, "programs loaded from disk in the step, in place of being compiled"}, ofGraphs(func(g *Graphs) float64 { return float64(g.Loaded) })},
	{Metric{"xla/compile_s", Seconds, Lower, "time of compiling in the step, summed over programs that were compiled side by side"}, ofGraphs(func(g *Graphs) float64 { return g.Compiling.Seconds() })},
}

func ofGraphs(of func(*Graphs) float64) func(*Step) float64 {
	return func(s *Step) float64 {
		if s.TrainingBusy == nil || s.TrainingBusy.Graphs == nil {
			return 0
		}
		return of(s.TrainingBusy.Graphs)
	}
}
