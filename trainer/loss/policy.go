package loss

import (
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/internal/config"
)

// maxLogRatio bounds |log ratio|, as in verl (clamp of 20), so that one token with very different
// policies cannot overflow the sum.
const maxLogRatio = 20

// PolicyInputs are the tokens of a microbatch.
type PolicyInputs struct {
	Logprobs        *Node // float32 [N] of the policy being trained, with gradient
	OldLogprobs     *Node // float32 [N] of the policy before the step's first update, without gradient
	RolloutLogprobs *Node // float32 [N] of the engine that sampled the tokens
	RefLogprobs     *Node // float32 [N] of the reference policy; nil without a penalty
	Advantages      *Node // float32 [N], one number per trajectory, repeated
	Mask            *Node // bool [N], the LossMask
	// Selected are the tokens of Mask that train; nil is all of them. Means and measures are
	// over Mask in both cases.
	Selected *Node // bool [N]
	// Sequences is the number of each token's trajectory, 0 <= number < N, and any number
	// outside Mask. It is nil if NeedsSequences is false.
	Sequences *Node // int32 [N]
	// GroupTokens is the number of loss tokens of each token's group in the whole minibatch, a
	// constant. It is nil if NeedsGroups is false.
	GroupTokens *Node // float32 [N]
	Denominator *Node // float32 scalar, see Denominator
}

// policy builds the objective of one microbatch.
type policy struct {
	cfg       config.Loss
	in        PolicyInputs
	numTokens *Node // see lengths
	out       Measures
}

// Policy builds the objective of policy updates and its measures:
//
//	L = -mean(m_t w_t gain_t) + beta mean(kl_t)
//
// gain is the surrogate of the objective (see clipped, sequenceRatio, cispo), w and m
// are the weight and the mask of the rollout correction (see correct), kl is the
// penalty (see penalty), and mean divides by Denominator. There is no entropy bonus:
// the recipe removed it for stability (rStar2-Agent, arXiv 2508.20722, section 2.2).
//
// With old_logprobs: rollout, the ratios of the objective are against the engine's
// policy, and OldLogprobs are not used.
func Policy(cfg config.Loss, in PolicyInputs) Measures {
	p := &policy{cfg: cfg, in: in}
	p.check()
	train := in.OldLogprobs
	if cfg.OldLogprobs == config.OldRollout {
		train = StopGradient(in.Logprobs)
		p.in.OldLogprobs = in.RolloutLogprobs
	}
	trained := in.Mask
	if in.Selected != nil {
		trained = LogicalAnd(in.Selected, in.Mask)
	}
	delta := Where(in.Mask, Sub(in.Logprobs, p.in.OldLogprobs), ZerosLike(in.Logprobs)) // [N]
	gain := p.gain(delta)                                                               // [N]
	weight, inside := p.correct(train)
	if weight != nil {
		gain = Mul(gain, weight)
	}
	if inside != nil {
		trained = LogicalAnd(trained, inside)
	}
	p.out[Untrained] = maskedCount(LogicalNot(trained), in.Mask)
	p.out[OldKL] = Neg(ReduceAllSum(StopGradient(delta)))
	p.out[Loss] = Neg(p.mean(gain, trained))
	if in.RefLogprobs != nil {
		p.out[Penalty] = MulScalar(p.mean(p.penalty(delta), in.Mask), cfg.KL.Coefficient)
		p.out[Loss] = Add(p.out[Loss], p.out[Penalty])
	}
	return p.out
}

// check refuses inputs whose shapes or settings contradict one another.
func (p *policy) check() {
	if err := p.cfg.Validate(); err != nil {
		exceptions.Panicf("objective: %v", err)
	}
	dims := p.in.Logprobs.Shape().Dimensions
	for _, n := range []*Node{p.in.OldLogprobs, p.in.RolloutLogprobs, p.in.RefLogprobs, p.in.Advantages, p.in.Mask, p.in.Selected, p.in.Sequences, p.in.GroupTokens} {
		if n != nil {
			n.AssertDims(dims...)
		}
	}
	p.in.Denominator.AssertScalar()
	if NeedsSequences(p.cfg) && p.in.Sequences == nil {
		exceptions.Panicf("objective %q, mean %q, correction %q: want the sequence of each token", p.cfg.Objective, p.cfg.Aggregation, p.cfg.Correction.Level)
	}
	if NeedsGroups(p.cfg) && p.in.GroupTokens == nil {
		exceptions.Panicf("mean %q: want the tokens of each token's group", p.cfg.Aggregation)
	}
	if (p.cfg.KL.Coefficient > 0) != (p.in.RefLogprobs != nil) {
		exceptions.Panicf("coefficient of the penalty is %v: want reference log-probabilities exactly where it is above 0", p.cfg.KL.Coefficient)
	}
}
