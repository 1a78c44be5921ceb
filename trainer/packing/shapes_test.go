package packing_test

import (
	"slices"
	"testing"
	"time"

	"temper/internal/config"
	"temper/trainer/packing"
)

func paper(t *testing.T) config.Run {
	t.Helper()
	cfg, err := config.LoadFile("../../configs/rstar2-14b.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// gpus are eight devices with the network of the paper.
var gpus = packing.Machine{Backend: "xla:rocm", Devices: 8, Parameters: 14_768_307_200, Layers: 40}

// TestSixGraphsForThePaper: the shapes of configs/rstar2-14b.yaml take six programs, on
// meshes too, and every sequence of the run has a shape.
func TestSixGraphsForThePaper(t *testing.T) {
	cfg := paper(t)
	for _, data := range []int{1, 4, 8} {
		p := packing.Plan{Tokens: cfg.RL.MicrobatchTokens, RowsMultiple: data}
		c := packing.ChooseShapes(packing.WorkOf(cfg), gpus, p)
		t.Logf("data %d: %+v", data, c)
		if c.Graphs > 6 || c.Graphs != c.Fixed+len(c.Policy)+len(c.Supervised) || c.Fixed != 2 {
			t.Errorf("data %d: %d programs", data, c.Graphs)
		}
		for _, shapes := range [][]packing.Shape{c.Policy, c.Supervised} {
			if !slices.ContainsFunc(shapes, func(s packing.Shape) bool { return s.Length >= cfg.Model.MaxContext }) {
				t.Errorf("data %d: %v hold no sequence of %d tokens", data, shapes, cfg.Model.MaxContext)
			}
			for _, s := range shapes {
				if s.Rows%data != 0 || s.Tokens() > cfg.RL.MicrobatchTokens*data {
					t.Errorf("data %d: shape %v", data, s)
				}
			}
		}
		p.Pack = true
		packed := packing.ChooseShapes(packing.WorkOf(cfg), gpus, p)
		if c.Padding < 0.02 || c.Padding > 0.6 || packed.Padding > 0.05 || packed.Graphs > 6 {
			t.Errorf("data %d: padding %.3f, packed %.3f", data, c.Padding, packed.Padding)
		}
	}
}

// TestWorkDecides what programs there are.
func TestWorkDecides(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*config.Run)
		fixed, shaped int // of one shape
	}{
		"the paper":                 {func(*config.Run) {}, 2, 2},
		"no supervised updates":     {func(r *config.Run) { r.SFT.Steps, r.SFT.Epochs = 0, 0 }, 2, 1},
		"several updates":           {func(r *config.Run) { r.RL.NumMinibatches = 4 }, 3, 3},
		"the engine's policy":       {func(r *config.Run) { r.RL.NumMinibatches, r.RL.Loss.OldLogprobs = 4, config.OldRollout }, 3, 2},
		"a reference policy":        {func(r *config.Run) { r.RL.Loss.KL.Coefficient = 0.1 }, 2, 3},
		"with scores by one graph":  {func(r *config.Run) { r.RL.Loss.KL.Coefficient, r.RL.NumMinibatches = 0.1, 2 }, 3, 3},
		"with entropies":            {func(r *config.Run) { r.RL.Loss.KL.Coefficient, r.RL.Loss.EntropyFraction = 0.1, 0.2 }, 2, 4},
		"parts that are not alike":  {func(r *config.Run) { r.SFT.Optimizer.Freeze = []string{"lm_head.weight"} }, 4, 2},
		"compiling is out of price": {func(r *config.Run) { r.Trainer.Graphs.CompileTime, r.Trainer.Graphs.Max = 10000*time.Hour, 12 }, 2, 2},
	} {
		cfg := paper(t)
		cfg.Trainer.Graphs.Max = 3 // one shape of each
		c.change(&cfg)
		got := packing.ChooseShapes(packing.WorkOf(cfg), gpus, packing.Plan{Tokens: cfg.RL.MicrobatchTokens})
		if got.Fixed != c.fixed || got.Graphs != c.fixed+c.shaped {
			t.Errorf("%s: %d programs, %d without a shape, want %d and %d", name, got.Graphs, got.Fixed, c.fixed+c.shaped, c.fixed)
		}
	}
}
