package engine_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// demo is a network of about the size of the embedded demo's.
func demo(hidden, layers, intermediate int) model.Config {
	return model.Config{
		VocabSize: 400, HiddenSize: hidden, IntermediateSize: intermediate, NumHiddenLayers: layers,
		NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32, MaxPositionEmbeddings: 320,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}
}

// BenchmarkDecode generates 128 tokens after a 24-token prompt for as many
// requests at once as there are slots.
func BenchmarkDecode(b *testing.B) {
	for _, m := range []struct {
		name  string
		model model.Config
		slots int
	}{
		{"d128x4/slots=16", demo(128, 4, 384), 16},
		{"d128x4/slots=64", demo(128, 4, 384), 64},
		{"d128x4/slots=128", demo(128, 4, 384), 128},
		{"d96x3/slots=64", demo(96, 3, 256), 64},
	} {
		b.Run(m.name, func(b *testing.B) {
			e := start(b, engine.Config{Model: m.model, Slots: m.slots})
			cpu, begin, before := cpuTime(), time.Now(), e.Stats()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range m.slots {
					wg.Go(func() {
						_, err := e.Generate(context.Background(), inference.Request{
							Tokens: prompt(i, 24), MaxTokens: 128, Temperature: 1, Seed: uint64(i), Version: -1,
						})
						if err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			after := e.Stats()
			tokens := float64(after.Generated - before.Generated)
			b.ReportMetric(tokens/time.Since(begin).Seconds(), "tok/s")
			b.ReportMetric(tokens/(cpuTime()-cpu).Seconds(), "tok/cpu-s")
			b.ReportMetric(float64(m.model.NumParameters()), "params")
		})
	}
}

// BenchmarkTurns plays 128 rollouts of three turns, with a pause for a tool
// between turns: over a slot for each, and over half as many.
func BenchmarkTurns(b *testing.B) {
	for _, slots := range []int{128, 64} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			e := start(b, engine.Config{Model: demo(128, 4, 384), Slots: slots})
			cpu, begin, before := cpuTime(), time.Now(), e.Stats()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range 128 {
					wg.Go(func() { rollout(b, e, i) })
				}
				wg.Wait()
			}
			after := e.Stats()
			tokens := float64(after.Generated - before.Generated)
			fed := tokens + float64(after.Prefilled-before.Prefilled)
			b.ReportMetric(tokens/time.Since(begin).Seconds(), "tok/s")
			b.ReportMetric(tokens/(cpuTime()-cpu).Seconds(), "tok/cpu-s")
			b.ReportMetric(fed/tokens, "fed/tok")
			b.ReportMetric(fed/float64(after.Rows-before.Rows), "fill")
			b.ReportMetric(float64(after.Evictions-before.Evictions)/float64(b.N), "evictions/op")
		})
	}
}

// rollout generates three turns of 40 tokens with 20 tool tokens after each.
func rollout(tb testing.TB, e *engine.Engine, i int) {
	session := fmt.Sprintf("rollout-%d", i)
	defer e.Release(session)
	context_ := prompt(i, 30)
	for range 3 {
		gen, err := e.Generate(context.Background(), inference.Request{
			Tokens: context_, MaxTokens: 40, Temperature: 1, Seed: uint64(i), Version: -1, Session: session,
		})
		if err != nil {
			tb.Error(err)
			return
		}
		context_ = append(append(context_, gen.Tokens...), prompt(i+1, 20)...)
		time.Sleep(8 * time.Millisecond)
	}
}

// start opens an engine with start weights as version 1.
func start(tb testing.TB, cfg engine.Config) *engine.Engine {
	tb.Helper()
	e, err := engine.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Close)
	load(tb, e, cfg.Model, 1)
	return e
}

// load serves the start weights of a seed equal to the version.
func load(tb testing.TB, e *engine.Engine, network model.Config, version int64) {
	tb.Helper()
	weights, err := model.InitialTensors(network, uint64(version))
	if err != nil {
		tb.Fatal(err)
	}
	if err := e.LoadTensors(context.Background(), weights, version); err != nil {
		tb.Fatal(err)
	}
}

// prompt draws n tokens below 40 that differ by i.
func prompt(i, n int) []int32 {
	draw := rl.Rand(rl.Seed(3, "prompt", uint64(i)))
	p := make([]int32, n)
	for k := range p {
		p[k] = int32(draw.IntN(40))
	}
	return p
}

// cpuTime is the CPU time of the process so far.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkLongLimit generates short answers under a limit of 2,048 tokens.
func BenchmarkLongLimit(b *testing.B) {
	network := demo(128, 4, 384)
	network.MaxPositionEmbeddings = 2048
	e := start(b, engine.Config{Model: network, Slots: 64})
	cpu, before := cpuTime(), e.Stats()
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				req := inference.Request{Tokens: prompt(i, 24), MaxTokens: 40, Temperature: 1, Seed: uint64(i), Version: -1}
				if _, err := e.Generate(context.Background(), req); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(e.Stats().Generated-before.Generated)/(cpuTime()-cpu).Seconds(), "tok/cpu-s")
}
