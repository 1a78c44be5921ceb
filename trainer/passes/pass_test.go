package passes

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/model"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
)

// The tests of this package are inside it: they look at graphs, at inputs that are
// wrong on purpose, and at shardings without devices.

func tinyConfig() Config {
	return Config{Backend: "go", Temperature: 1, Network: model.Config{
		VocabSize: 29, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1, HeadDim: 8,
		MaxPositionEmbeddings: 4096, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.2}}
}

func adam() config.Optimizer {
	return config.Optimizer{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Schedule: "constant"}
}

// open returns passes whose state is ready for updates by o.
func open(t testing.TB, cfg Config, o config.Optimizer) *Passes {
	t.Helper()
	s, reference := optimizer.NewState(cfg.Network), optimizer.NewReference(cfg.Network)
	p, err := Open(cfg, s, reference)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	t.Cleanup(s.Close)
	if err := errors.Join(s.Init(1), s.Tune(o)); err != nil {
		t.Fatal(err)
	}
	return p
}

// rowsOf makes rows of samples of a fixed text.
func rowsOf(t testing.TB, network model.Config, lengths ...int) []*packing.Row {
	t.Helper()
	var samples []rl.Sample
	for i, n := range lengths {
		s := rl.Sample{Rollout: i, Advantage: float32(i%3) - 1, Tokens: make([]int32, n), LossMask: make([]bool, n)}
		for p := range n {
			s.Tokens[p], s.LossMask[p] = int32((7*i+5*p*p)%29), p > 2
		}
		samples = append(samples, s)
	}
	rows, err := packing.Rows(samples, packing.Limits{VocabSize: network.VocabSize, MaxTokens: network.MaxPositionEmbeddings})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// absent returns a pointer that must not be followed.
func absent() *packing.Row { return nil }

func TestGuardCatchesPanics(t *testing.T) {
	for want, fn := range map[string]func() error{
		"x graph: boom":  func() error { panic("boom") },
		"x graph: loud":  func() error { panic(errors.New("loud")) },
		"x graph: plain": func() error { return errors.New("plain") },
		"x graph: runtime panic: : runtime error": func() error { return errors.New(string(rune(absent().Length))) },
	} {
		var graphErr *GraphError
		if err := guard("x", fn); !errors.As(err, &graphErr) || !strings.HasPrefix(err.Error(), want) || graphErr.Stack == "" {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := guard("x", func() error { return nil }); err != nil {
		t.Error(err)
	}
}
