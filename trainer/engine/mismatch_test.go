package engine_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"temper/internal/config"
	"temper/internal/policy"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/engine"
	"temper/trainer/qwen3"
)

// trajectories samples contexts of the given lengths at a temperature: a prompt,
// generations, and between them tokens that nobody sampled.
func trajectories(t *testing.T, cfg qwen3.Config, temperature float32, lengths []int) []rl.Sample {
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
				gen, err := e.Generate(t.Context(), policy.Request{Tokens: s.Tokens, MaxTokens: max(1, (length-len(s.Tokens)+1)/2),
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
func ci() qwen3.Config {
	return qwen3.Config{VocabSize: 430, HiddenSize: 64, IntermediateSize: 192, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 16, MaxPositionEmbeddings: 128, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}
}

// TestTrainerFollowsTheEngine: what the engine sampled with, the trainer finds
// again within rounding, and its first update is on policy exactly.
func TestTrainerFollowsTheEngine(t *testing.T) {
	long := ci()
	long.MaxPositionEmbeddings = 640
	t.Run("ci", func(t *testing.T) {
		follows(t, ci(), trajectories(t, ci(), 1, []int{128, 100, 40, 66, 90, 30, 128}), 8e-6)
	})
	t.Run("long", func(t *testing.T) { follows(t, long, trajectories(t, long, 1, []int{600, 300, 257}), 8e-6) })
}

// follows makes the first update on the samples in passes of several shapes. The
// log-probabilities of the two graphs, which differ in the order of their sums,
// may be bound apart at any token.
func follows(t *testing.T, model qwen3.Config, samples []rl.Sample, bound float64) {
	t.Helper()
	weights, err := qwen3.InitialTensors(model, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range []int{256, 1 << 14} {
		for _, pack := range []bool{false, true} {
			tr, err := trainer.New(trainer.Config{Model: model, MicrobatchTokens: tokens, Pack: pack, Temperature: 1,
				Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28}})
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
			t.Logf("passes of %5d tokens, packed %-5v: at most %.2g apart, %d of %d equal in all bits", tokens, pack, apart, equal, all)
			if !(apart <= bound) || !(m.MismatchMax <= bound) {
				t.Errorf("passes of %d tokens, packed %v: log-probabilities are %g apart, %g in the update; want at most %g",
					tokens, pack, apart, m.MismatchMax, bound)
			}
			if m.PPOKL != 0 || m.ClipLow != 0 || m.ClipHigh != 0 {
				t.Errorf("passes of %d tokens, packed %v: ppo_kl %v, clipped %v and %v; want exactly 0", tokens, pack, m.PPOKL, m.ClipLow, m.ClipHigh)
			}
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
