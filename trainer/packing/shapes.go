package packing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"temper/internal/config"
)

// Work is the expected work of a run by its configuration. The zero value is unknown work.
type Work struct {
	MaxTokens, MeanTokens int
	// Dialogues of a supervised update, 0 for none, and Sequences of a policy update.
	Dialogues, Sequences int
	// Several reports that a step makes several updates: the later ones score their sequences
	// before the first, and the state before the step is copied.
	Several bool
	// Scores reports that the policy scores sequences beside its updates, Entropies that it
	// does so with entropies, and Reference that a reference policy scores them.
	Scores, Entropies, Reference bool
	// TwoTunings reports that the two kinds of updates train or decay different tensors.
	TwoTunings  bool
	MaxGraphs   int
	CompileTime time.Duration
}

// WorkOf returns the work of a run.
func WorkOf(cfg config.Run) Work {
	l, g := cfg.RL.Loss, cfg.Trainer.Graphs
	w := Work{
		MaxTokens: cfg.Model.MaxContext, MeanTokens: g.MeanTokens,
		Sequences: max(1, cfg.RL.ProblemsPerStep*cfg.RL.GroupSize/max(1, cfg.RL.NumMinibatches)),
		Several:   cfg.RL.NumMinibatches > 1, Entropies: l.EntropyFraction > 0 || cfg.Tracker.TokenStats > 0, Reference: l.KL.Coefficient > 0,
		MaxGraphs: g.Most(), CompileTime: g.CompileTime,
	}
	w.Scores = w.Entropies || w.Several && l.OldLogprobs != config.OldRollout
	if cfg.SFT.Steps > 0 || cfg.SFT.Epochs > 0 {
		w.Dialogues = cfg.SFT.BatchSize
		w.TwoTunings = tuningOf(cfg.SFT.Optimizer) != tuningOf(cfg.RL.Optimizer)
	}
	return w
}

// tuningOf returns the parts of an optimizer that are compiled into graphs.
func tuningOf(o config.Optimizer) string {
	return fmt.Sprint(o.DecayVectors, o.DecayEmbeddings, o.Freeze)
}

// Machine is the device of the passes.
type Machine struct {
	Backend string // its name, as in xla:cuda
	Devices int
	// Parameters and Layers of the network.
	Parameters, Layers int
}

// horizon is the number of updates after which a program must have paid for itself. A run makes
// more updates, and may start more than once.
const horizon = 100

// Shapes are the shapes of the passes of a run.
type Shapes struct {
	Supervised []Shape `json:"supervised,omitempty"`
	Policy     []Shape `json:"policy"`
	// Graphs is the number of different programs: programs for shapes, and Fixed ones.
	Graphs int `json:"graphs"`
	Fixed  int `json:"without_shape"`
	// Padding is the expected share of padding in the tokens of passes.
	Padding float64 `json:"padding"`
	// CompileTime of a program and TokenTime of a pass are assumptions of the choice.
	CompileTime time.Duration `json:"compile_ns"`
	TokenTime   time.Duration `json:"token_ns"`
}

// ChooseShapes chooses shapes for a plan, whose Buckets it ignores.
func ChooseShapes(w Work, m Machine, p Plan) Shapes {
	compile, flops := m.assumed()
	compile = cmp.Or(w.CompileTime, compile)
	token := time.Duration(6 * float64(m.Parameters) / (flops * float64(max(1, m.Devices))) * float64(time.Second))
	budget := Budget{Max: w.MaxGraphs, Fixed: w.fixed(), Price: float64(compile) / float64(max(1, token))}
	forecast := Forecast{MaxTokens: w.MaxTokens, MeanTokens: w.MeanTokens, Demands: []Demand{
		{Kinds: w.kinds(), Batches: []Batch{{Sequences: w.Sequences, Updates: horizon}}},
	}}
	if w.Dialogues > 0 {
		forecast.Demands = append(forecast.Demands, Demand{Kinds: 1, Batches: []Batch{{Sequences: w.Dialogues, Updates: horizon}}})
	}
	got := p.Choose(forecast, budget)
	c := Shapes{Policy: got.Buckets[0], Graphs: got.Graphs, Fixed: w.fixed(), Padding: got.Padding, CompileTime: compile, TokenTime: token}
	if w.Dialogues > 0 {
		c.Supervised = got.Buckets[1]
	}
	return c
}

// kinds returns the number of programs of each shape of policy passes. A reference policy
// shares the scoring program of the trained one, if that yields no entropies.
func (w Work) kinds() int {
	n := 1 // gradients
	if w.Scores {
		n++
	}
	if w.Reference && (w.Entropies || !w.Scores) {
		n++
	}
	return n
}

// fixed returns the number of programs without a shape: gradients are added and applied, and
// the state is copied.
func (w Work) fixed() int {
	n := 2
	if w.TwoTunings {
		n *= 2
	}
	if w.Several {
		n++
	}
	return n
}

// assumed returns the time of compiling a program, and a device's operations a second. Both
// are rough, and the values for GPUs were never measured: trainer.graphs.compile_time
// replaces the first.
func (m Machine) assumed() (compile time.Duration, flops float64) {
	if strings.Contains(m.Backend, "cpu") {
		return time.Duration(m.Layers) * 400 * time.Millisecond, 20e9
	}
	return 10*time.Second + time.Duration(m.Layers)*2*time.Second, 3e14
}
