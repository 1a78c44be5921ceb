package loss

import (
	. "github.com/gomlx/gomlx/core/graph"
)

// Measure is a number that a microbatch yields beside its gradient. Measures are added over the
// microbatches of a minibatch, except maxima (IsMax).
type Measure int

// The measures. All of them count the tokens where the LossMask of the samples is true.
const (
	Loss           Measure = iota // the differentiated value, already divided by the denominator
	Penalty                       // the part of the loss that penalizes distance from the reference
	Entropy                       // nats, sum over tokens
	ClipLow                       // tokens held at 1-ClipLow
	ClipHigh                      // tokens held at 1+ClipHigh
	ClipDual                      // tokens of negative advantage held at DualClip
	OldKL                         // sum of log pi_old - log pi
	RefK1                         // sum of log pi - log pi_ref
	RefK2                         // sum of half its square
	RefK3                         // sum of pi_ref/pi - log(pi_ref/pi) - 1
	RolloutDiff                   // sum of |log pi_rollout - log pi_train|
	RolloutK1                     // sum of log pi_rollout - log pi_train
	RolloutK3                     // sum of pi_train/pi_rollout - log(pi_train/pi_rollout) - 1
	Weight                        // sum of pi_train/pi_rollout, at the level of the correction, before its cap
	Capped                        // tokens whose weight was above the cap
	LeftOut                       // tokens whose weight was outside the mask of the correction
	Untrained                     // tokens in no gradient: left out, or not selected
	RolloutDiffMax                // largest |log pi_rollout - log pi_train| of a token
	WeightMax                     // largest weight before its cap
	NumMeasures
)

// String names the measure in reports.
func (m Measure) String() string {
	return [NumMeasures]string{
		"loss", "penalty", "entropy", "clip_low", "clip_high", "clip_dual", "old_kl", "ref_k1", "ref_k2", "ref_k3",
		"rollout_diff", "rollout_k1", "rollout_k3", "weight", "capped", "left_out", "untrained", "rollout_diff_max", "weight_max",
	}[m]
}

// IsMax reports whether the measure of a minibatch is the maximum over its microbatches instead
// of the sum.
func (m Measure) IsMax() bool { return m == RolloutDiffMax || m == WeightMax }

// Measures are scalars; one that does not apply is nil.
type Measures [NumMeasures]*Node

// Vector returns the measures in order, 0 for those that do not apply: float32 [NumMeasures]. It
// has no gradient.
func (m *Measures) Vector() *Node {
	zero := ScalarZero(m[Loss].Graph(), m[Loss].DType())
	all := make([]*Node, NumMeasures)
	for i, x := range m {
		all[i] = zero
		if x != nil {
			all[i] = StopGradient(x)
		}
	}
	return Stack(all, 0)
}
