package loss

import (
	. "github.com/gomlx/gomlx/core/graph"
)

// maxLogRatio bounds |log ratio| as verl does (clamp of 20), so that one token
// on which the policies differ absurdly cannot overflow the sum.
const maxLogRatio = 20

// GRPO is the clipped policy objective of group-relative policy optimization
// with asymmetric clipping.
type GRPO struct {
	// ClipLow and ClipHigh bound the ratio to [1-ClipLow, 1+ClipHigh]. Values of
	// "clip-higher": 0.2 and 0.28 (DAPO, arXiv 2503.14476, section 3.1).
	ClipLow, ClipHigh float64
}

// GRPOInputs are the tokens of a microbatch.
type GRPOInputs struct {
	Logprobs    *Node // float32 [N] of the policy being trained, with gradient
	OldLogprobs *Node // float32 [N] of the policy before the step's first update
	Advantages  *Node // float32 [N], one number per trajectory, repeated
	Mask        *Node // bool [N], the tokens in the loss
	Denominator *Node // float32 scalar, loss tokens of the whole minibatch
}

// GRPOSums are scalars of a microbatch; those of a minibatch are their sums.
type GRPOSums struct {
	Loss     *Node // already divided by the denominator
	ClipLow  *Node // number of tokens held at 1-ClipLow
	ClipHigh *Node // number of tokens held at 1+ClipHigh
	KL       *Node // sum of old - new log-probability
}

// Sums builds the objective:
//
//	L = -sum_t min(r_t A_t, clip(r_t, 1-low, 1+high) A_t) / denominator
//	r_t = exp(log p_t - log p_old,t)
//
// The clipped surrogate is equation 7 of PPO (arXiv 1707.06347); the mean over
// all tokens of the batch instead of one mean per sequence is equation 8 of
// DAPO (arXiv 2503.14476), which GRPO-RoC keeps (rStar2-Agent, arXiv
// 2508.20722, section 2.2). There is neither a KL term nor an entropy bonus.
func (c GRPO) Sums(in GRPOInputs) GRPOSums {
	dims := in.Logprobs.Shape().Dimensions
	for _, n := range []*Node{in.OldLogprobs, in.Advantages, in.Mask} {
		n.AssertDims(dims...)
	}
	in.Denominator.AssertScalar()
	delta := Where(in.Mask, Sub(in.Logprobs, in.OldLogprobs), ZerosLike(in.Logprobs)) // [N]
	ratio := Exp(ClipScalar(delta, -maxLogRatio, maxLogRatio))                        // [N]
	// min(r A, clip(r) A) needs one of the two bounds: the upper one where A > 0,
	// the lower one where A < 0.
	zero := ScalarZero(in.Logprobs.Graph(), in.Advantages.DType())
	negative, positive := LessThan(in.Advantages, zero), GreaterThan(in.Advantages, zero)
	bounded := Where(negative, MaxScalar(ratio, 1-c.ClipLow), MinScalar(ratio, 1+c.ClipHigh)) // [N]
	gain := Mul(bounded, in.Advantages)                                                       // [N]

	low := LogicalAnd(negative, LessThan(ratio, bounded))
	high := LogicalAnd(positive, GreaterThan(ratio, bounded))
	return GRPOSums{
		Loss:     Neg(Div(MaskedSum(gain, in.Mask), in.Denominator)),
		ClipLow:  maskedCount(low, in.Mask),
		ClipHigh: maskedCount(high, in.Mask),
		KL:       Neg(ReduceAllSum(StopGradient(delta))),
	}
}

// AbsDifference adds |a - b| up over the tokens where mask is true. With the
// engine's and the trainer's log-probabilities of one policy it measures how
// far the two implementations are apart.
func AbsDifference(a, b, mask *Node) *Node {
	return MaskedSum(Abs(Sub(a, b)), mask)
}
