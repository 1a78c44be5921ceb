package loss

import (
	. "github.com/gomlx/gomlx/core/graph"

	"temper/internal/config"
)

// maxK3 bounds the penalty of a token, as in verl: otherwise the exponential of one
// token could exceed the sum of all others. A token at the bound has no gradient.
const maxK3 = 10

// correct weights tokens by the ratio of the trained policy to the sampling policy, which
// differ by rounding, kernels and precision.
//
//	w_t = pi_train(y_t) / pi_rollout(y_t)                  level token
//	w_t = prod of token ratios over the sequence of t      level sequence
//	weight = min(w, cap)                                   truncated importance sampling
//	inside = mask_low <= w <= mask_high                    masked importance sampling
//
// Truncation at the token comes from "Your Efficient RL Framework Secretly Brings
// You Off-Policy RL Training" (Yao et al., 2025), both bounds at the sequence from
// "When Speed Kills Stability" (Liu et al., 2025). IcePop (arXiv 2510.18855) masks at
// the token and keeps the weight w inside. The measures are taken at the level of
// tokens even without a correction. No gradient flows. A result that does not apply is
// nil.
func (p *policy) correct(train *Node) (weight, inside *Node) {
	cfg, mask := p.cfg.Correction, p.in.Mask
	diff := StopGradient(Where(mask, Sub(p.in.RolloutLogprobs, train), ZerosLike(train))) // [N]
	p.out[RolloutDiff] = AbsDifference(p.in.RolloutLogprobs, train, mask)
	p.out[RolloutDiffMax] = maskedMax(Abs(diff), mask)
	p.out[RolloutK1] = ReduceAllSum(diff)
	p.out[RolloutK3] = MaskedSum(k3(Neg(diff)), mask)

	log := Neg(diff)
	if cfg.Level == config.CorrectSequence {
		log = p.sequenceSums(log)
	}
	raw := Exp(ClipScalar(log, -maxLogRatio, maxLogRatio)) // [N]
	p.out[Weight] = MaskedSum(raw, mask)
	p.out[WeightMax] = maskedMax(raw, mask)
	if cfg.Level == "" {
		return nil, nil
	}
	weight = raw
	if cfg.Cap > 0 {
		weight = MinScalar(raw, cfg.Cap)
		p.out[Capped] = maskedCount(GreaterThan(raw, weight), mask)
	}
	if cfg.Masks() {
		low, high := Scalar(raw.Graph(), raw.DType(), cfg.MaskLow), Scalar(raw.Graph(), raw.DType(), cfg.MaskHigh)
		inside = LogicalAnd(GreaterOrEqual(raw, low), LessOrEqual(raw, high))
		p.out[LeftOut] = maskedCount(LogicalNot(inside), mask)
	}
	return weight, inside
}

// penalty estimates the divergence from the reference policy at each token:
//
//	k1 = log(pi/pi_ref)                              measure only
//	k2 = log(pi/pi_ref)^2 / 2                        measure only
//	k3 = pi_ref/pi - log(pi_ref/pi) - 1              (GRPO, arXiv 2402.03300, equation 4)
//	k3_ratio = (pi/pi_old) k3                        (arXiv 2512.02556, equation 7)
//
// k3 is unbiased for tokens sampled from the policy. k3_ratio also has an unbiased gradient,
// in all updates of a step. The names come from J. Schulman, "Approximating KL divergence",
// 2020.
func (p *policy) penalty(delta *Node) *Node {
	mask := p.in.Mask
	d := Where(mask, Sub(StopGradient(p.in.RefLogprobs), p.in.Logprobs), ZerosLike(p.in.Logprobs)) // [N]
	p.out[RefK1] = Neg(ReduceAllSum(StopGradient(d)))
	p.out[RefK2] = MulScalar(ReduceAllSum(Square(StopGradient(d))), 0.5)
	estimate := k3(d)
	p.out[RefK3] = MaskedSum(StopGradient(estimate), mask)
	if p.cfg.KL.Estimator == config.EstimatorK3Ratio {
		estimate = Mul(Exp(ClipScalar(delta, -maxLogRatio, maxLogRatio)), estimate)
	}
	return estimate
}

// k3 of log(q/p), bounded: q/p - log(q/p) - 1.
func k3(log *Node) *Node {
	log = ClipScalar(log, -maxLogRatio, maxLogRatio)
	return MinScalar(AddScalar(Sub(Exp(log), log), -1), maxK3)
}

// AbsDifference returns the sum of |a - b| over the tokens where mask is true. For the engine's
// and the trainer's log-probabilities of one policy, it measures the difference of the two
// implementations.
func AbsDifference(a, b, mask *Node) *Node {
	return MaskedSum(Abs(Sub(a, b)), mask)
}
