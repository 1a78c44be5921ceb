package engine_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// trajectories samples contexts of the given lengths at a temperature: a prompt,
// generations, and between them tokens that nobody sampled.
func trajectories(t *testing.T, cfg model.Config, temperature float32, lengths []int) []rl.Sample {
	t.Helper()
	e := start(t, engine.Config{Model: cfg, Slots: len(lengths), MaxContext: cfg.MaxPositionEmbeddings})
	out := make([]rl.Sample, len(lengths))
	var all sync.WaitGroup
	for i, length := range lengths {
		all.Go(func() {
			s := rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(i%3) - 1}
			add := func(tokens []int32, logprobs []float32) {
				for k := range tokens {
					s.Tokens, s.LossMask = append(s.Tokens, tokens[k]), append(s.LossMask, logprobs != nil)
					if logprobs == nil {
						s.RolloutLogprobs = append(s.RolloutLogprobs, 0)
					} else {
						s.RolloutLogprobs = append(s.RolloutLogprobs, logprobs[k])
					}
				}
			}
			add(prompt(i, 9+i), nil)
			for turn := 0; len(s.Tokens) < length; turn++ {
				if turn > 0 {
					add(prompt(turn, 3), nil)
				}
				gen, err := e.Generate(t.Context(), inference.Request{Tokens: s.Tokens, MaxTokens: max(1, (length-len(s.Tokens)+1)/2),
					Temperature: temperature, Seed: uint64(i), Version: -1, Session: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				add(gen.Tokens, gen.Logprobs)
			}
			out[i] = s
		})
	}
	all.Wait()
	return out
}

// ci is the network of configs/ci.yaml, with weights as large as training makes them.
func ci() model.Config {
	return model.Config{VocabSize: 430, HiddenSize: 64, IntermediateSize: 192, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 16, MaxPositionEmbeddings: 128, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}
}

// TestTrainerFollowsTheEngine: what the engine sampled with, the trainer finds
// again to the last bit, and its first update is on policy exactly.
func TestTrainerFollowsTheEngine(t *testing.T) {
	long, odd := ci(), ci()
	long.MaxPositionEmbeddings = 640
	odd.VocabSize, odd.HiddenSize, odd.IntermediateSize, odd.HeadDim, odd.TieWordEmbeddings = 401, 96, 272, 24, false
	for _, c := range []struct {
		name        string
		model       model.Config
		temperature float32
		lengths     []int
	}{
		{"ci", ci(), 1, []int{128, 100, 40, 66, 90, 30, 128}},
		{"long", long, 1, []int{600, 300, 257}},
		{"odd", odd, 0.7, []int{100, 60, 33, 128}},
	} {
		t.Run(c.name, func(t *testing.T) {
			follows(t, c.model, c.temperature, trajectories(t, c.model, c.temperature, c.lengths))
		})
	}
}

// follows makes the first update on the samples in passes of several shapes.
func follows(t *testing.T, network model.Config, temperature float32, samples []rl.Sample) {
	t.Helper()
	weights, err := model.InitialTensors(network, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []trainer.Config{
		{MicrobatchTokens: 256}, {MicrobatchTokens: 256, Pack: true}, {MicrobatchTokens: 256, Remat: true},
		{MicrobatchTokens: 1 << 14, LaneTokens: 1 << 14}, {MicrobatchTokens: 1 << 14, LaneTokens: 1 << 14, Pack: true},
	} {
		pass := fmt.Sprintf("passes of %d tokens, packed %v, remat %v", c.MicrobatchTokens, c.Pack, c.Remat)
		c.Model, c.Temperature, c.Loss = network, float64(temperature), config.Loss{ClipLow: 0.2, ClipHigh: 0.28}
		tr, err := trainer.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if err := tr.Import(weights); err != nil {
			t.Fatal(err)
		}
		logprobs, err := tr.Logprobs(t.Context(), samples)
		if err != nil {
			t.Fatal(err)
		}
		apart, equal, all := difference(samples, logprobs)
		m, err := tr.Update(t.Context(), rl.Batch{Step: 1, Samples: samples},
			trainer.UpdateOptions{Optimizer: config.Default().RL.Optimizer, Position: trainer.Position{Step: 1, Total: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if equal != all || m.MismatchMax != 0 || m.MismatchKL != 0 {
			t.Errorf("%s: %d of %d log-probabilities have the engine's bits, the others are up to %g off; in the update up to %g, %g on average; want all and 0",
				pass, equal, all, apart, m.MismatchMax, m.MismatchKL)
		}
		if m.PPOKL != 0 || m.ClipLow != 0 || m.ClipHigh != 0 {
			t.Errorf("%s: ppo_kl %v, clipped %v and %v; want exactly 0", pass, m.PPOKL, m.ClipLow, m.ClipHigh)
		}
	}
}

// difference compares the engine's log-probabilities of the sampled tokens with others.
func difference(samples []rl.Sample, logprobs [][]float32) (most float64, equal, all int) {
	for i, s := range samples {
		for p, sampled := range s.LossMask {
			if !sampled {
				continue
			}
			all++
			if logprobs[i][p] == s.RolloutLogprobs[p] {
				equal++
			}
			most = max(most, math.Abs(float64(logprobs[i][p])-float64(s.RolloutLogprobs[p])))
		}
	}
	return most, equal, all
}
