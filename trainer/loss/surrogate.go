package loss

import (
	. "github.com/gomlx/gomlx/core/graph"

	"temper/internal/config"
)

// gain returns the value that an update increases, for each token: [N]. delta is the
// log-probability minus the one under the old policy.
func (p *policy) gain(delta *Node) *Node {
	switch p.cfg.Objective {
	case config.ObjectiveGSPO:
		return p.clipped(p.sequenceRatio(delta))
	case config.ObjectiveCISPO:
		return p.cispo(delta)
	default:
		return p.clipped(Exp(ClipScalar(delta, -maxLogRatio, maxLogRatio)))
	}
}

// clipped is the clipped surrogate:
//
//	gain = min(r A, clip(r, 1-low, 1+high) A)              (PPO, arXiv 1707.06347, equation 7)
//	gain = max(min(r A, clip(r, 1-low, 1+high) A), c A)    where A < 0, with a dual clip c
//
// The bounds below and above differ ("clip-higher": DAPO, arXiv 2503.14476,
// equation 10); the dual clip comes from arXiv 1912.09729. The sign of A decides which
// bounds matter: the upper one where A > 0, the lower one and c where A < 0.
func (p *policy) clipped(ratio *Node) *Node {
	advantages, mask := p.in.Advantages, p.in.Mask
	zero := ScalarZero(ratio.Graph(), advantages.DType())
	negative, positive := LessThan(advantages, zero), GreaterThan(advantages, zero)
	lower := MaxScalar(ratio, 1-p.cfg.ClipLow) // [N]
	if p.cfg.DualClip > 0 {
		lower = MinScalar(lower, p.cfg.DualClip)
	}
	bounded := Where(negative, lower, MinScalar(ratio, 1+p.cfg.ClipHigh)) // [N]
	above := GreaterThan(ratio, bounded)
	p.out[ClipLow] = maskedCount(LogicalAnd(negative, LessThan(ratio, bounded)), mask)
	p.out[ClipHigh] = maskedCount(LogicalAnd(positive, above), mask)
	if p.cfg.DualClip > 0 {
		p.out[ClipDual] = maskedCount(LogicalAnd(negative, above), mask)
	}
	return Mul(bounded, advantages)
}

// sequenceRatio is the ratio of a whole sequence; each of its tokens has an equal part of the
// gradient:
//
//	s_i  = (pi(y_i) / pi_old(y_i)) ^ (1/n_i)     (GSPO, arXiv 2507.18071, equation 7)
//	s_it = sg(s_i) pi_it / sg(pi_it)             (equation 14)
//
// In a mean over sequences with one advantage per sequence, value and gradient equal the ones
// of equation 5 (section 4.3 there).
func (p *policy) sequenceRatio(delta *Node) *Node {
	mean := Div(p.sequenceSums(delta), p.lengths()) // [N]
	own := Where(p.in.Mask, Sub(p.in.Logprobs, StopGradient(p.in.Logprobs)), ZerosLike(delta))
	return Exp(Add(ClipScalar(mean, -maxLogRatio, maxLogRatio), own))
}

// cispo keeps the gradient of every token and bounds its weight instead:
//
//	gain = sg(clip(r, 1-low, 1+high)) A log pi     (arXiv 2506.13585, equations 4 and 5)
func (p *policy) cispo(delta *Node) *Node {
	ratio := StopGradient(Exp(ClipScalar(delta, -maxLogRatio, maxLogRatio)))
	bounded := ClipScalar(ratio, 1-p.cfg.ClipLow, 1+p.cfg.ClipHigh)
	p.out[ClipLow] = maskedCount(LessThan(ratio, bounded), p.in.Mask)
	p.out[ClipHigh] = maskedCount(GreaterThan(ratio, bounded), p.in.Mask)
	return Mul(Mul(bounded, p.in.Advantages), p.in.Logprobs)
}
