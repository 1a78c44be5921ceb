package loss

import (
	. "github.com/gomlx/gomlx/core/graph"

	"temper/internal/config"
)

// maxK3 bounds the penalty of a token as verl does, where its exponential would
// drown all others; such a token has no gradient.
const maxK3 = 10

// correct weighs tokens by the policy that trains over the one that sampled,
// which rounding, kernels or precision hold apart:
//
//	w_t = pi_train(y_t) / pi_rollout(y_t)                  level token
//	w_t = prod of these over the sequence of t             level sequence
//	weight = min(w, cap)                                   truncated importance sampling
//	inside = mask_low <= w <= mask_high                    masked importance sampling
//
// Truncation at the token is that of "Your Efficient RL Framework Secretly
// Brings You Off-Policy RL Training" (Yao et al., 2025); both bounds at the
// sequence are those of "When Speed Kills Stability" (Liu et al., 2025); weight
// w inside and nothing outside at the token is IcePop (arXiv 2510.18855). The
// measures are taken without a correction too, at the level of tokens. No
// gradient flows. What is nil does not apply.
func (p *policy) correct(train *Node) (weight, inside *Node) {
	cfg, mask := p.cfg.Correction, p.in.Mask
	apart := StopGradient(Where(mask, Sub(p.in.RolloutLogprobs, train), ZerosLike(train))) // [N]
	p.out[RolloutDiff] = AbsDifference(p.in.RolloutLogprobs, train, mask)
	p.out[RolloutDiffMax] = maskedMax(Abs(apart), mask)
	p.out[RolloutK1] = ReduceAllSum(apart)
	p.out[RolloutK3] = MaskedSum(k3(Neg(apart)), mask)

	log := Neg(apart)
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
// k3 has the right mean for tokens that the policy itself sampled; k3_ratio
// also has the right gradient, and holds for the later updates of a step. The
// names are those of J. Schulman, "Approximating KL divergence", 2020.
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

// AbsDifference adds |a - b| up over the tokens where mask is true. With the
// engine's and the trainer's log-probabilities of one policy it measures how
// far the two implementations are apart.
func AbsDifference(a, b, mask *Node) *Node {
	return MaskedSum(Abs(Sub(a, b)), mask)
}
