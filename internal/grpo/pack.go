package grpo

import (
	"cmp"
	"fmt"
	"slices"

	"temper/internal/rl"
)

// Minibatches deals the samples of a batch into n parts of nearly equal size in
// a seeded order. Parts may be empty when there are fewer samples than parts.
func Minibatches(batch rl.Batch, n int, seed uint64) []rl.Batch {
	parts := make([]rl.Batch, n)
	order := rl.Rand(rl.Seed(seed, "minibatches")).Perm(len(batch.Samples))
	for i, at := range order {
		parts[i%n].Samples = append(parts[i%n].Samples, batch.Samples[at])
	}
	for i := range parts {
		parts[i].Step = batch.Step
	}
	return parts
}

// Pack returns the indices of samples in microbatches: in each, the number of
// samples times the longest length is at most maxTokens. Samples of like length
// go together to save padding. Each sample is in exactly one microbatch.
func Pack(samples []rl.Sample, maxTokens int) ([][]int, error) {
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return -cmp.Compare(len(samples[a].Tokens), len(samples[b].Tokens)) })
	var packs [][]int
	longest := 0
	for _, i := range order {
		size := len(samples[i].Tokens)
		if size > maxTokens {
			return nil, fmt.Errorf("pack: trajectory %s/%d has %d tokens, microbatch_tokens is %d",
				samples[i].ProblemID, samples[i].Rollout, size, maxTokens)
		}
		last := len(packs) - 1
		if last < 0 || (len(packs[last])+1)*longest > maxTokens {
			packs = append(packs, nil)
			last++
			longest = size
		}
		packs[last] = append(packs[last], i)
	}
	return packs, nil
}
