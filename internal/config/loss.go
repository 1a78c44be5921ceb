package config

import (
	"slices"
	"strings"
)

// Objectives of policy updates.
const (
	ObjectiveGRPO  = "grpo"  // ratio of each token, clipped
	ObjectiveGSPO  = "gspo"  // ratio of the whole sequence, clipped
	ObjectiveCISPO = "cispo" // clipped ratio as a weight of the log-probability
)

// Means over tokens.
const (
	AggregateTokens    = "token_mean"    // over all loss tokens of the minibatch
	AggregateSequences = "sequence_mean" // over the sequences' means over their loss tokens
	AggregateConstant  = "constant"      // over the sequences' sums, each divided by ConstantTokens
)

// Old policies of the ratio.
const (
	OldRecompute = "recompute" // the trainer's own before the step's first update
	OldRollout   = "rollout"   // the engine's: RolloutLogprobs
)

// Levels of the rollout correction.
const (
	CorrectToken    = "token"
	CorrectSequence = "sequence"
)

// Estimators of the divergence from the reference policy.
const (
	EstimatorK3      = "k3"
	EstimatorK3Ratio = "k3_ratio"
)

// What becomes of trajectories that hit the limit of response tokens.
const (
	OverlongKeep = "keep"
	OverlongMask = "mask"
)

// Loss is the objective of policy updates. Every key but the clipping bounds
// may be left out; what is left out is switched off, so that the zero value
// with two bounds is the recipe's objective (arXiv 2508.20722, section 2.2):
// clipped ratios of tokens, one mean over all of them, nothing else.
type Loss struct {
	// Objective: grpo (default; arXiv 2402.03300), gspo (arXiv 2507.18071) or
	// cispo (arXiv 2506.13585).
	Objective string `yaml:"objective,omitempty" json:"objective,omitempty"`
	// ClipLow and ClipHigh hold the ratio within [1-ClipLow, 1+ClipHigh]. GSPO's
	// paper has 3e-4 and 4e-4; CISPO's has no lower bound, which is ClipLow 1.
	ClipLow  float64 `yaml:"clip_low" json:"clip_low"`
	ClipHigh float64 `yaml:"clip_high" json:"clip_high"`
	// DualClip is the largest ratio that a token of negative advantage counts with
	// (arXiv 1912.09729; usual: 3); 0 = no such bound.
	DualClip float64 `yaml:"dual_clip,omitempty" json:"dual_clip,omitempty"`
	// Aggregation: token_mean (default; DAPO, arXiv 2503.14476, equation 8),
	// sequence_mean (GRPO, arXiv 2402.03300, equation 3) or constant (Dr. GRPO,
	// arXiv 2503.20783, section 3.2).
	Aggregation string `yaml:"aggregation,omitempty" json:"aggregation,omitempty"`
	// ConstantTokens divides the sum of each sequence with aggregation constant:
	// the largest number of response tokens.
	ConstantTokens int `yaml:"constant_tokens,omitempty" json:"constant_tokens,omitempty"`
	// OldLogprobs is the denominator of the ratio: recompute (default), the
	// trainer's own log-probabilities, or rollout, the engine's, which then also
	// correct for what differs between the two.
	OldLogprobs string `yaml:"old_logprobs,omitempty" json:"old_logprobs,omitempty"`
	// Correction weighs tokens by how far the trainer's policy is from the
	// engine's that sampled them.
	Correction Correction `yaml:"correction,omitempty" json:"correction,omitzero"`
	// KL holds the policy near a reference policy.
	KL KL `yaml:"kl,omitempty" json:"kl,omitzero"`
	// Overlong: keep (default), or mask, which leaves trajectories that hit the
	// limit of response tokens out of the update but not out of their group's baseline.
	Overlong string `yaml:"overlong,omitempty" json:"overlong,omitempty"`
	// EntropyFraction trains on this part of each minibatch's loss tokens alone,
	// those of highest entropy under the policy before the step (arXiv 2506.01939;
	// usual: 0.2), with the denominator of all. 0 = all. It costs a forward pass.
	EntropyFraction float64 `yaml:"entropy_fraction,omitempty" json:"entropy_fraction,omitempty"`
	// MaxLogits bounds tokens times vocabulary that exist at once in a device
	// pass, in both kinds of training; beyond it the vocabulary is worked off in
	// chunks, which costs one more product with the head. 0 = no bound.
	MaxLogits int `yaml:"max_logits,omitempty" json:"max_logits,omitempty"`
}

// Correction is importance sampling between the two policies that should be
// one: w = pi_old / pi_rollout, of a token or of a sequence's product.
type Correction struct {
	// Level: token or sequence; empty = no correction.
	Level string `yaml:"level,omitempty" json:"level,omitempty"`
	// Cap makes min(w, Cap) the weight (truncated importance sampling; usual: 2).
	// 0 = w itself with a mask, which is what IcePop does.
	Cap float64 `yaml:"cap,omitempty" json:"cap,omitempty"`
	// MaskLow and MaskHigh leave out what has w outside of them (IcePop and
	// masked importance sampling; usual: 0.5 and 5). Both 0 = no mask.
	MaskLow  float64 `yaml:"mask_low,omitempty" json:"mask_low,omitempty"`
	MaskHigh float64 `yaml:"mask_high,omitempty" json:"mask_high,omitempty"`
}

// Masks reports whether weights out of range are left out.
func (c Correction) Masks() bool { return c.MaskHigh > 0 }

// KL is the penalty for leaving the reference policy.
type KL struct {
	// Coefficient of the penalty; 0 = none, and no reference policy is loaded.
	Coefficient float64 `yaml:"coefficient,omitempty" json:"coefficient,omitempty"`
	// Estimator: k3 (default; arXiv 2402.03300, equation 4), or k3_ratio, times
	// pi/pi_old, which is right off policy too (arXiv 2512.02556, equation 7).
	Estimator string `yaml:"estimator,omitempty" json:"estimator,omitempty"`
}

// Validate reports every problem of the objective at once, as Problems whose
// paths are below "rl.loss".
func (l Loss) Validate() error {
	c := &checker{}
	c.loss("rl.loss", l)
	if len(c.out) > 0 {
		return c.out
	}
	return nil
}

// switchOf checks a switch that may be left out.
func (c *checker) switchOf(path, have string, known ...string) {
	if have != "" {
		c.oneOf(path, have, known)
	}
}

func (c *checker) loss(path string, l Loss) {
	c.switchOf(path+".objective", l.Objective, ObjectiveGRPO, ObjectiveGSPO, ObjectiveCISPO)
	c.within(path+".clip_low", l.ClipLow, 1e-5, 1)
	c.within(path+".clip_high", l.ClipHigh, 1e-5, 100)
	if l.DualClip != 0 {
		c.within(path+".dual_clip", l.DualClip, 1.001, 1000)
	}
	if l.DualClip != 0 && l.DualClip <= 1+l.ClipHigh {
		c.add(path+".dual_clip", "is %g, want more than 1 + %s.clip_high (%g)", l.DualClip, path, 1+l.ClipHigh)
	}
	c.switchOf(path+".aggregation", l.Aggregation, AggregateTokens, AggregateSequences, AggregateConstant)
	if (l.Aggregation == AggregateConstant) != (l.ConstantTokens != 0) {
		c.add(path+".constant_tokens", "is %d with aggregation %q: constant, and no other, divides by it", l.ConstantTokens, l.Aggregation)
	}
	if l.ConstantTokens != 0 {
		c.between(path+".constant_tokens", l.ConstantTokens, 1, 1<<24)
	}
	c.switchOf(path+".old_logprobs", l.OldLogprobs, OldRecompute, OldRollout)
	c.switchOf(path+".overlong", l.Overlong, OverlongKeep, OverlongMask)
	c.correction(path+".correction", l.Correction)
	c.switchOf(path+".kl.estimator", l.KL.Estimator, EstimatorK3, EstimatorK3Ratio)
	c.within(path+".kl.coefficient", l.KL.Coefficient, 0, 100)
	if l.KL.Estimator != "" && l.KL.Coefficient == 0 {
		c.add(path+".kl.estimator", "is %q, but %s.kl.coefficient is 0", l.KL.Estimator, path)
	}
	c.within(path+".entropy_fraction", l.EntropyFraction, 0, 1)
	if l.MaxLogits != 0 {
		c.atLeast(path+".max_logits", l.MaxLogits, 1<<10)
	}
	c.conflicts(path, l)
}

// conflicts refuses switches that do not go together, with the reason.
func (c *checker) conflicts(path string, l Loss) {
	if l.Objective == ObjectiveCISPO && l.DualClip != 0 {
		c.add(path+".dual_clip", "does not go with objective cispo, which bounds the ratio on both sides whatever the advantage")
	}
	if l.Objective == ObjectiveGSPO && l.Aggregation != AggregateSequences {
		c.add(path+".aggregation", "is %q, but objective gspo is a mean over sequences (arXiv 2507.18071, equation 5): want %s", l.Aggregation, AggregateSequences)
	}
	if l.Objective == ObjectiveGSPO && l.EntropyFraction > 0 {
		c.add(path+".entropy_fraction", "does not go with objective gspo, whose ratio is that of all tokens of a sequence")
	}
	if l.Objective == ObjectiveGSPO && l.Correction.Level == CorrectToken {
		c.add(path+".correction.level", "is token, but objective gspo weighs whole sequences: want %s", CorrectSequence)
	}
	if l.OldLogprobs == OldRollout && l.Correction.Level != "" {
		c.add(path+".correction.level", "does not go with old_logprobs rollout: there the ratio itself corrects, and would count twice")
	}
}

func (c *checker) correction(path string, k Correction) {
	c.switchOf(path+".level", k.Level, CorrectToken, CorrectSequence)
	if k.Cap != 0 {
		c.within(path+".cap", k.Cap, 1, 1000)
	}
	if k.MaskLow != 0 || k.MaskHigh != 0 {
		c.within(path+".mask_low", k.MaskLow, 0, 1)
		c.within(path+".mask_high", k.MaskHigh, 1, 1000)
	}
	stated := k.Cap != 0 || k.Masks()
	switch {
	case k.Level == "" && stated:
		c.add(path+".level", "is missing beside a cap or a mask, want one of %s", strings.Join([]string{CorrectToken, CorrectSequence}, ", "))
	case slices.Contains([]string{CorrectToken, CorrectSequence}, k.Level) && !stated:
		c.add(path+".cap", "is 0 and there is no mask: weights would be without a bound")
	}
}
