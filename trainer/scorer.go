package trainer

import (
	"context"
	"fmt"

	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/packing"
	"temper/trainer/passes"
	"temper/trainer/passes/inputs"
)

// scorer scores the targets of rows under a policy, and changes nothing.
type scorer struct {
	passes *passes.Passes
	plan   packing.Plan
}

// scores are the results of a pass for a row's targets.
type scores struct {
	logprobs []float32
	entropy  []float32 // nil if the program does not yield it
}

// keepOld stores the scores as scores of the policy before the step.
func keepOld(r *packing.Row, v scores) { r.Old, r.Entropy = v.logprobs, v.entropy }

// score runs a scoring program on the rows and calls keep with the scores of each.
func (s scorer) score(ctx context.Context, p passes.Program, rows []*packing.Row, keep func(*packing.Row, scores)) error {
	return s.passes.Each(ctx, p, s.plan.Microbatches(rows), inputs.Scoring, func(mb packing.Microbatch, out []device.Value) error {
		defer device.Release(out...)
		values := make([][]float32, 2)
		for i, x := range out {
			var err error
			if values[i], err = x.Floats(); err != nil {
				return fmt.Errorf("read log-probabilities: %w", err)
			}
		}
		for i, r := range mb.Members {
			v := scores{logprobs: values[0][mb.Starts[i]:][:r.Length]}
			if values[1] != nil {
				v.entropy = values[1][mb.Starts[i]:][:r.Length]
			}
			keep(r, v)
		}
		return nil
	})
}

// all scores every token of the samples: its log-probability, 0 for the first, and the entropy
// of its distribution, nil without Config.Entropies.
func (s scorer) all(ctx context.Context, samples []rl.Sample, limits packing.Limits) (logprobs, entropies [][]float32, err error) {
	var rows []*packing.Row
	for i := range samples {
		whole := rl.Sample{ProblemID: samples[i].ProblemID, Rollout: samples[i].Rollout, Tokens: samples[i].Tokens}
		whole.LossMask = make([]bool, len(whole.Tokens))
		if err := limits.Check(&whole); err != nil {
			return nil, nil, fmt.Errorf("sample %d: %w", i, err)
		}
		if len(whole.Tokens) > 1 {
			rows = append(rows, &packing.Row{Sample: &whole, Index: i, Length: len(whole.Tokens) - 1})
		}
	}
	if err := s.score(ctx, passes.Program{Objective: passes.Policy, Kind: passes.Score}, rows, keepOld); err != nil {
		return nil, nil, err
	}
	logprobs, entropies = make([][]float32, len(samples)), make([][]float32, len(samples))
	for i := range samples {
		logprobs[i], entropies[i] = make([]float32, len(samples[i].Tokens)), make([]float32, len(samples[i].Tokens))
	}
	for _, r := range rows {
		copy(logprobs[r.Index][1:], r.Old)
		if r.Entropy == nil {
			entropies = nil // the program does not yield them
		}
		if entropies != nil {
			copy(entropies[r.Index][1:], r.Entropy)
		}
	}
	return logprobs, entropies, nil
}
