package packing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"temper/internal/config"
)

// Work is what a configuration says of the passes to come. The zero value says nothing.
type Work struct {
	MaxTokens, MeanTokens int
	// Dialogues of a supervised update, 0 where there are none, and Sequences of a policy
	// update.
	Dialogues, Sequences int
	// Several updates make a step, so that the later ones score their sequences before the
	// first, and the state before the step is copied.
	Several bool
	// Scores says that the policy scores sequences beside its updates, Entropies that it
	// does so with entropies, and Reference that a reference policy does.
	Scores, Entropies, Reference bool
	// TwoTunings says that the two kinds of updates train or decay different tensors.
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

// tuningOf is what an optimizer is compiled for.
func tuningOf(o config.Optimizer) string {
	return fmt.Sprint(o.DecayVectors, o.DecayEmbeddings, o.Freeze)
}

// Machine is where the passes are made.
type Machine struct {
	Backend string // its name, as in xla:cuda
	Devices int
	// Parameters and Layers of the network.
	Parameters, Layers int
}

// horizon is the number of updates over which a program has to pay for itself. A run makes
// more of them, and starts more than once.
const horizon = 100

// Shapes is the shapes of the passes of a run.
type Shapes struct {
	Supervised []Shape `json:"supervised,omitempty"`
	Policy     []Shape `json:"policy"`
	// Graphs is the number of programs that differ: those of shapes, and Fixed ones.
	Graphs int `json:"graphs"`
	Fixed  int `json:"without_shape"`
	// Padding is the share of the tokens of passes that is expected to be padding.
	Padding float64 `json:"padding"`
	// CompileTime of a program and TokenTime of a pass are what the choice assumes.
	CompileTime time.Duration `json:"compile_ns"`
	TokenTime   time.Duration `json:"token_ns"`
}

// ChooseShapes chooses shapes for the plan, whose own Buckets do not matter.
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

// kinds is the number of programs that each shape of policy passes has. A reference policy
// scores by the same program as the trained one, where that yields no entropies.
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

// fixed is the number of programs without a shape: gradients are added up and applied, and
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

// assumed is how long a program takes to compile and how many operations a second a device
// makes. They are rough, and those of GPUs were never measured: trainer.graphs.compile_time
// replaces the first.
func (m Machine) assumed() (compile time.Duration, flops float64) {
	if strings.Contains(m.Backend, "cpu") {
		return time.Duration(m.Layers) * 400 * time.Millisecond, 20e9
	}
	return 10*time.Second + time.Duration(m.Layers)*2*time.Second, 3e14
}
