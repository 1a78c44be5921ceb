package loss

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"

	"temper/internal/config"
)

// Counts of a minibatch: its loss tokens, and its sequences and groups with a loss token.
type Counts struct{ Tokens, Sequences, Groups int }

// Denominator returns the divisor of the sum over a minibatch. A sequence lies within one
// microbatch. A group, the sequences of one problem, may not: each of its tokens has the number
// of its loss tokens N_g in the minibatch.
//
//	token_mean        sum_i sum_t x_it / sum_i n_i             (DAPO, arXiv 2503.14476, equation 8)
//	sequence_mean     sum_i (sum_t x_it / n_i) / sequences     (GRPO, arXiv 2402.03300, equation 3)
//	constant          sum_i sum_t x_it / (C sequences)         (Dr. GRPO, arXiv 2503.20783, section 3.2)
//	group_token_mean  sum_g (sum_i sum_t x_it / N_g) / groups  (rStar2-Agent, arXiv 2508.20722, section 2.2)
func Denominator(cfg config.Loss, n Counts) int {
	switch cfg.Aggregation {
	case config.AggregateSequences:
		return n.Sequences
	case config.AggregateConstant:
		return n.Sequences * cfg.ConstantTokens
	case config.AggregateGroups:
		return n.Groups
	default:
		return n.Tokens
	}
}

// NeedsGroups reports whether the objective divides by the tokens of groups, and so needs
// PolicyInputs.GroupTokens.
func NeedsGroups(cfg config.Loss) bool { return cfg.Aggregation == config.AggregateGroups }

// NeedsSequences reports whether the objective sums over sequences, and so
// needs PolicyInputs.Sequences.
func NeedsSequences(cfg config.Loss) bool {
	return cfg.Aggregation == config.AggregateSequences || cfg.Objective == config.ObjectiveGSPO ||
		cfg.Correction.Level == config.CorrectSequence
}

// mean divides the sum of the values over the tokens where mask is true by the denominator: the
// microbatch's part of the configured mean.
func (p *policy) mean(values, mask *Node) *Node {
	switch p.cfg.Aggregation {
	case config.AggregateSequences:
		values = Div(values, p.lengths())
	case config.AggregateGroups:
		values = Div(values, MaxScalar(p.in.GroupTokens, 1)) // 0 outside of all groups
	}
	return Div(MaskedSum(values, mask), p.in.Denominator)
}

// lengths returns the number of loss tokens in each token's sequence, at least 1: [N].
func (p *policy) lengths() *Node {
	if p.numTokens == nil {
		p.numTokens = MaxScalar(p.sequenceSums(ConvertDType(p.in.Mask, dtypes.Float32)), 1)
	}
	return p.numTokens
}

// sequenceSums returns, for each token, the sum of the values over its sequence: [N].
// The caller has set the values outside the loss to 0. No gradient flows.
func (p *policy) sequenceSums(values *Node) *Node {
	n := values.Shape().Size()
	at := Reshape(p.in.Sequences, n, 1)                                                 // [N, 1]
	flat := StopGradient(Reshape(values, n))                                            // [N]
	sums := ScatterSum(ZerosLike(flat), at, flat, false, false)                         // [N], by sequence
	return StopGradient(Reshape(Gather(sums, at), p.in.Logprobs.Shape().Dimensions...)) // [N]
}

// MaskedSum returns the sum of the values where mask is true, a scalar. Values elsewhere have no
// influence, not even infinite ones.
func MaskedSum(values, mask *Node) *Node {
	return ReduceAllSum(Where(mask, values, ZerosLike(values)))
}

// maskedMax returns the largest value where mask is true, at least 0.
func maskedMax(values, mask *Node) *Node {
	return ReduceAllMax(Where(mask, values, ZerosLike(values)))
}

// maskedCount returns the number of tokens at which both conditions hold, as float32.
func maskedCount(condition, mask *Node) *Node {
	return ReduceAllSum(ConvertDType(LogicalAnd(condition, mask), dtypes.Float32))
}
