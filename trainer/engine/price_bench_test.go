package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/cpu/kernels"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// BenchmarkPriceOfPortable measures what portable kernels cost against native ones: the
// median ratio of processor times of the same work, done with one and the other in turns,
// which a busy machine hardly changes.
func BenchmarkPriceOfPortable(b *testing.B) {
	for _, m := range []struct {
		name  string
		model model.Config
	}{{"d128x4", demo(128, 4, 384)}, {"d256x6", demo(256, 6, 768)}} {
		b.Run("update/"+m.name, func(b *testing.B) { inTurns(b, m.model, updates) })
		b.Run("decode/"+m.name, func(b *testing.B) { inTurns(b, m.model, decodes) })
	}
}

// inTurns measures work with native and with portable kernels in turns.
func inTurns(b *testing.B, network model.Config, prepare func(*testing.B, model.Config, kernels.Choice) func()) {
	native, portable := prepare(b, network, kernels.Native), prepare(b, network, kernels.Portable)
	for range 2 { // build the graphs
		native()
		portable()
	}
	var ratios []float64
	var sum [2]float64
	for b.Loop() {
		begin := ownCPU(b)
		native()
		middle := ownCPU(b)
		portable()
		n, p := (middle - begin).Seconds(), (ownCPU(b) - middle).Seconds()
		ratios, sum[0], sum[1] = append(ratios, p/n), sum[0]+n, sum[1]+p
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "portable/native")
	b.ReportMetric(sum[1]/sum[0], "of-sums")
	b.ReportMetric(1e3*sum[0]/float64(len(ratios)), "native-cpu-ms")
}

// ownCPU returns the processor time of this process.
func ownCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// updates makes policy updates on 8 trajectories of 256 tokens.
func updates(b *testing.B, network model.Config, c kernels.Choice) func() {
	tr, err := trainer.New(trainer.Config{Model: network, Kernels: c, MicrobatchTokens: 1 << 14, Temperature: 1,
		Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(tr.Close)
	if err := tr.Init(1); err != nil {
		b.Fatal(err)
	}
	samples := make([]rl.Sample, 8)
	for i := range samples {
		s := &samples[i]
		*s = rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(i%2)*2 - 1, Tokens: prompt(i, 257)}
		for k := range s.Tokens {
			s.LossMask, s.RolloutLogprobs = append(s.LossMask, k >= 24), append(s.RolloutLogprobs, -3)
		}
	}
	adam := config.Default().RL.Optimizer
	return func() {
		if _, err := tr.Update(b.Context(), rl.Batch{Step: 1, Samples: samples},
			trainer.UpdateOptions{Optimizer: adam, Position: trainer.Position{Step: 1, Total: 2}}); err != nil {
			b.Fatal(err)
		}
	}
}

// decodes samples 64 tokens of each of 64 rollouts.
func decodes(b *testing.B, network model.Config, c kernels.Choice) func() {
	e := start(b, engine.Config{Model: network, Kernels: c, Slots: 64})
	return func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := e.Generate(context.Background(), inference.Request{Tokens: prompt(i, 24), MaxTokens: 64, Temperature: 1,
					Seed: uint64(i), Version: -1, Session: fmt.Sprint(i)}); err != nil {
					b.Error(err)
				}
				e.Release(fmt.Sprint(i))
			})
		}
		wg.Wait()
	}
}
