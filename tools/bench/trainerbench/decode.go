package trainerbench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/tools/bench/meter"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// The requests of a decoding measurement.
const (
	decodePrompt = 24
	decodeTokens = 128
)

// DecodeReport is the speed of sampling by as many requests at once as there
// are slots, each of 128 tokens after a prompt of 24.
type DecodeReport struct {
	Slots              int        `json:"slots"`
	Tokens             int        `json:"tokens"`
	Cost               meter.Cost `json:"cost"` // of all tokens of a round
	TokensPerSecond    float64    `json:"tokens_per_s"`
	TokensPerCPUSecond float64    `json:"tokens_per_cpu_s"`
}

// Decode measures the engine with start weights; the median round counts.
func Decode(ctx context.Context, c Config, slots int) (DecodeReport, error) {
	c.Model.MaxPositionEmbeddings = max(c.Model.MaxPositionEmbeddings, decodePrompt+decodeTokens)
	e, err := engine.New(engine.Config{Model: c.Model, Backend: c.Backend, Kernels: c.Kernels, Slots: slots, MaxContext: decodePrompt + decodeTokens})
	if err != nil {
		return DecodeReport{}, err
	}
	defer e.Close()
	weights, err := model.InitialTensors(c.Model, c.Seed)
	if err != nil {
		return DecodeReport{}, err
	}
	if err := e.LoadTensors(ctx, weights, 1); err != nil {
		return DecodeReport{}, err
	}
	r := DecodeReport{Slots: slots, Tokens: slots * decodeTokens}
	var costs []meter.Cost
	for i := range c.Rounds + 1 {
		begin := meter.Now()
		if err := generate(ctx, e, c, slots); err != nil {
			return DecodeReport{}, fmt.Errorf("decode: %w", err)
		}
		if i > 0 { // the first round compiles
			costs = append(costs, begin.Since(1))
		}
	}
	r.Cost = meter.MedianCost(costs)
	r.TokensPerSecond, r.TokensPerCPUSecond = meter.Rate(float64(r.Tokens), r.Cost.Wall), meter.Rate(float64(r.Tokens), r.Cost.CPU)
	return r, nil
}

// generate answers one request for each slot.
func generate(ctx context.Context, e *engine.Engine, c Config, slots int) error {
	errs := make([]error, slots)
	var wg sync.WaitGroup
	for i := range slots {
		wg.Go(func() {
			draw := rl.Rand(rl.Seed(c.Seed, "prompt", uint64(i)))
			prompt := make([]int32, decodePrompt)
			for p := range prompt {
				prompt[p] = int32(draw.IntN(c.Model.VocabSize))
			}
			_, errs[i] = e.Generate(ctx, inference.Request{Tokens: prompt, MaxTokens: decodeTokens, Temperature: 1, Seed: uint64(i), Version: -1})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
