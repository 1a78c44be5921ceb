// Package packing decides which tokens meet in which device pass: it turns samples
// into rows, deals rows into minibatches, and cuts a minibatch into microbatches,
// padded or packed. On an accelerator, where each shape of a pass is a program to be
// compiled, it chooses the shapes of a run: few programs against little padding. It makes
// no tensors and knows no device.
//
// Invariant: the result is a pure function of the samples, the plan and the seed, and the
// shapes follow from the configuration, the name of the backend and the mesh. No core, no
// free memory and no measurement changes it, so the order in which gradients add up, and
// every bit of their sum, does not depend on the machine or on an earlier start.
//
// Axes in comments: B rows of a microbatch, T tokens of a row.
package packing

import (
	"fmt"
	"math"

	"temper/internal/rl"
)

// Row is a sample as a device pass reads it: positions 0..Length-1, each of which predicts the
// next token. The tokens after the last one in the loss have no influence and are cut off.
type Row struct {
	Sample     *rl.Sample
	Index      int // in the caller's samples
	Length     int
	LossTokens int
	// GroupTokens is the number of loss tokens of all rows of the row's problem in its
	// minibatch; see MarkGroups.
	GroupTokens int

	// Values of the row's targets, Length each. All of them belong to policies before the
	// step; nil for those that the objective does not need.

	Old       []float32 // log-probabilities under the policy before the step
	Reference []float32 // log-probabilities under the reference policy
	Entropy   []float32 // of the policy before the step
	Selected  []bool    // which targets train; nil trains all of the LossMask
}

// Limits of a sample, given by the network.
type Limits struct {
	VocabSize int
	MaxTokens int // number of positions of the network
}

// Rows checks the samples and drops those without a token in the loss.
func Rows(samples []rl.Sample, limits Limits) ([]*Row, error) {
	var out []*Row
	for i := range samples {
		s := &samples[i]
		if err := limits.Check(s); err != nil {
			return nil, fmt.Errorf("sample %d (%s/%d): %w", i, s.ProblemID, s.Rollout, err)
		}
		r := &Row{Sample: s, Index: i}
		for p, in := range s.LossMask {
			if in {
				r.Length = p
				r.LossTokens++
			}
		}
		if r.LossTokens > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

// Check refuses a sample with contradictions.
func (l Limits) Check(s *rl.Sample) error {
	n := len(s.Tokens)
	switch {
	case len(s.LossMask) != n:
		return fmt.Errorf("%d tokens but %d mask entries", n, len(s.LossMask))
	case s.RolloutLogprobs != nil && len(s.RolloutLogprobs) != n:
		return fmt.Errorf("%d tokens but %d rollout log-probabilities", n, len(s.RolloutLogprobs))
	case n > l.MaxTokens:
		return fmt.Errorf("%d tokens, the model holds %d", n, l.MaxTokens)
	case n > 0 && s.LossMask[0]:
		return fmt.Errorf("the first token is in the loss, but nothing predicts it")
	case math.IsNaN(float64(s.Advantage)) || math.IsInf(float64(s.Advantage), 0):
		return fmt.Errorf("advantage is %v", s.Advantage)
	}
	for p, token := range s.Tokens {
		if token < 0 || int(token) >= l.VocabSize {
			return fmt.Errorf("token %d at position %d is outside the vocabulary of %d", token, p, l.VocabSize)
		}
	}
	return nil
}

// MarkGroups sets GroupTokens of the rows of a minibatch, and returns the number of groups.
func MarkGroups(rows []*Row) int {
	tokens := map[string]int{}
	for _, r := range rows {
		tokens[r.Sample.ProblemID] += r.LossTokens
	}
	for _, r := range rows {
		r.GroupTokens = tokens[r.Sample.ProblemID]
	}
	return len(tokens)
}

// Count returns the tokens of the rows: all of them, and those in the loss.
func Count(rows []*Row) (all, inLoss int) {
	for _, r := range rows {
		all += r.Length
		inLoss += r.LossTokens
	}
	return all, inLoss
}

// Minibatches deals the rows into n parts of nearly equal size, in an order
// that depends on seed and step alone.
func Minibatches(rows []*Row, n int, seed uint64, step int) [][]*Row {
	if n <= 1 || len(rows) < 2 {
		return [][]*Row{rows}
	}
	n = min(n, len(rows))
	order := rl.Rand(rl.Seed(seed, "minibatch", uint64(step))).Perm(len(rows))
	out := make([][]*Row, n)
	for i, at := range order {
		k := i * n / len(rows)
		out[k] = append(out[k], rows[at])
	}
	return out
}
