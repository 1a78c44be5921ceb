package config

import (
	"reflect"
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
	AggregateTokens    = "token_mean"       // over all loss tokens of the minibatch
	AggregateSequences = "sequence_mean"    // over the sequences' means over their loss tokens
	AggregateConstant  = "constant"         // over the sequences' sums, each divided by ConstantTokens
	AggregateGroups    = "group_token_mean" // over the groups' means over their loss tokens
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

// Values of loss.overlong: the treatment of trajectories that hit the limit of response
// tokens.
const (
	OverlongKeep = "keep"
	OverlongMask = "mask"
	OverlongSoft = "soft"
)

// Loss is the objective of policy updates. Every key but the clipping bounds
// may be left out; what is left out is switched off, so that the zero value
// with two bounds is the recipe's objective (arXiv 2508.20722, section 2.2):
// clipped ratios of tokens, one mean over all of them, nothing else.
type Loss struct {
	// Objective is the surrogate: grpo clips the ratio of each token (arXiv 2402.03300),
	// gspo that of the whole sequence (arXiv 2507.18071), and cispo uses the clipped
	// ratio as a weight of the log-probability (arXiv 2506.13585).
	Objective string `yaml:"objective,omitempty" json:"objective,omitempty" enum:"grpo|gspo|cispo" empty:"grpo"`
	// ClipLow holds the ratio at or above 1 - clip_low. The paper of GSPO has 3e-4;
	// that of CISPO has no lower bound, which is 1.
	ClipLow float64 `yaml:"clip_low" json:"clip_low" range:"1e-05..1" amend:"yes"`
	// ClipHigh holds the ratio at or below 1 + clip_high. The paper of GSPO has 4e-4.
	ClipHigh float64 `yaml:"clip_high" json:"clip_high" range:"1e-05..100" amend:"yes"`
	// DualClip is the largest ratio with which a token of negative advantage counts
	// (arXiv 1912.09729; usual: 3). It must be more than 1 + clip_high. 0 means no such bound.
	DualClip float64 `yaml:"dual_clip,omitempty" json:"dual_clip,omitempty" range:"0|1.001..1000" amend:"yes"`
	// Aggregation is the mean over tokens: token_mean is over all loss tokens of the
	// minibatch (DAPO, arXiv 2503.14476, equation 8), sequence_mean over the means of the
	// sequences (GRPO, arXiv 2402.03300, equation 3), and constant over the sums of the
	// sequences, each divided by constant_tokens (Dr. GRPO, arXiv 2503.20783, section 3.2).
	// group_token_mean is over the means of the groups, each over all loss tokens of a
	// problem's kept trajectories (rStar2-Agent, arXiv 2508.20722, section 2.2): groups of
	// long and of short trajectories then weigh the same. With several minibatches a step
	// it is over the part of a group that is in the minibatch.
	Aggregation string `yaml:"aggregation,omitempty" json:"aggregation,omitempty" enum:"token_mean|sequence_mean|constant|group_token_mean" empty:"token_mean" amend:"yes"`
	// ConstantTokens divides the sum of each sequence with aggregation constant, and only
	// there. It is the largest number of response tokens.
	ConstantTokens int `yaml:"constant_tokens,omitempty" json:"constant_tokens,omitempty" range:"0..16777216" unit:"tokens" amend:"yes"`
	// OldLogprobs is the denominator of the ratio: recompute is the log-probabilities of
	// the trainer before the step; rollout is those of the engine, which then also
	// correct for the difference between the two.
	OldLogprobs string `yaml:"old_logprobs,omitempty" json:"old_logprobs,omitempty" enum:"recompute|rollout" empty:"recompute"`
	// Correction weighs tokens by the distance of the trainer's policy from the engine's
	// policy that sampled them.
	Correction Correction `yaml:"correction,omitempty" json:"correction,omitzero"`
	// KL holds the policy near a reference policy.
	KL KL `yaml:"kl,omitempty" json:"kl,omitzero" amend:"no: the reference policy is chosen at the start"`
	// Overlong is what becomes of trajectories that hit the limit of response tokens:
	// keep trains on them; mask leaves them out of the update but not out of the
	// baseline of their group; soft takes something from the reward of each trajectory whose
	// end lies in the last overlong_buffer tokens before the limit, in a straight line from
	// 0 to 1 at the limit (arXiv 2503.14476, equation 13). RoC and the choice of groups look
	// at the reward as it was.
	Overlong string `yaml:"overlong,omitempty" json:"overlong,omitempty" enum:"keep|mask|soft" empty:"keep" amend:"yes"`
	// OverlongBuffer is the length of the stretch before the limit with overlong soft, and
	// only there.
	OverlongBuffer int `yaml:"overlong_buffer,omitempty" json:"overlong_buffer,omitempty" range:"0.." unit:"tokens" amend:"yes"`
	// EntropyFraction trains only on this share of the loss tokens of each minibatch: those
	// of highest entropy under the policy before the step (arXiv 2506.01939; usual: 0.2).
	// The denominator remains that of all tokens. 0 means all. It costs a forward pass.
	EntropyFraction float64 `yaml:"entropy_fraction,omitempty" json:"entropy_fraction,omitempty" range:"0..1" amend:"yes"`
	// MaxLogits bounds tokens times vocabulary that exist at once in a device pass, in SFT
	// too. Beyond it the vocabulary is worked off in chunks, which costs one more product
	// with the head. 0 means no bound.
	MaxLogits int `yaml:"max_logits,omitempty" json:"max_logits,omitempty" range:"0|1024.." unit:"logits" amend:"yes"`
}

// Correction is importance sampling between the two policies that should be
// one: w = pi_old / pi_rollout, of a token or of a sequence's product.
type Correction struct {
	// Level is what a weight belongs to: a token or a whole sequence.
	Level string `yaml:"level,omitempty" json:"level,omitempty" enum:"token|sequence" empty:"no correction"`
	// Cap makes min(w, cap) the weight (truncated importance sampling; usual: 2). 0 means
	// w itself, which needs a mask (IcePop).
	Cap float64 `yaml:"cap,omitempty" json:"cap,omitempty" range:"0|1..1000"`
	// MaskLow leaves out what has a lower w (IcePop and masked importance sampling;
	// usual: 0.5). It goes with mask_high.
	MaskLow float64 `yaml:"mask_low,omitempty" json:"mask_low,omitempty" range:"0..1"`
	// MaskHigh leaves out what has a higher w (usual: 5). 0 means no mask.
	MaskHigh float64 `yaml:"mask_high,omitempty" json:"mask_high,omitempty" range:"0|1..1000"`
}

// Masks reports whether weights out of range are left out.
func (c Correction) Masks() bool { return c.MaskHigh > 0 }

// KL is the penalty for leaving the reference policy.
type KL struct {
	// Coefficient is the weight of the penalty. 0 means none, and no reference policy is loaded.
	Coefficient float64 `yaml:"coefficient,omitempty" json:"coefficient,omitempty" range:"0..100"`
	// Estimator estimates the divergence: k3 (arXiv 2402.03300, equation 4), or k3_ratio,
	// which multiplies it by pi/pi_old and is right off policy too (arXiv 2512.02556, equation 7).
	Estimator string `yaml:"estimator,omitempty" json:"estimator,omitempty" enum:"k3|k3_ratio" empty:"k3"`
}

// Validate reports every problem of the objective at once, as Problems whose
// paths are below "rl.loss".
func (l Loss) Validate() error {
	c := &checker{}
	c.byTags("rl.loss", reflect.ValueOf(l), nil)
	c.loss("rl.loss", l)
	if len(c.out) > 0 {
		return c.out
	}
	return nil
}

// loss checks what one tag cannot say.
func (c *checker) loss(path string, l Loss) {
	if l.DualClip != 0 && l.DualClip <= 1+l.ClipHigh {
		c.add(path+".dual_clip", "is %g, want more than 1 + %s.clip_high (%g)", l.DualClip, path, 1+l.ClipHigh)
	}
	if (l.Aggregation == AggregateConstant) != (l.ConstantTokens != 0) {
		c.add(path+".constant_tokens", "is %d with aggregation %q: constant, and no other, divides by it", l.ConstantTokens, l.Aggregation)
	}
	if (l.Overlong == OverlongSoft) != (l.OverlongBuffer != 0) {
		c.add(path+".overlong_buffer", "is %d with overlong %q: soft, and no other, has a buffer", l.OverlongBuffer, l.Overlong)
	}
	c.correction(path+".correction", l.Correction)
	if l.KL.Estimator != "" && l.KL.Coefficient == 0 {
		c.add(path+".kl.estimator", "is %q, but %s.kl.coefficient is 0", l.KL.Estimator, path)
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
	if k.MaskLow != 0 && k.MaskHigh == 0 {
		c.add(path+".mask_high", "is 0 beside %s.mask_low %g, want 1 to 1000", path, k.MaskLow)
	}
	stated := k.Cap != 0 || k.Masks()
	switch {
	case k.Level == "" && stated:
		c.add(path+".level", "is missing beside a cap or a mask, want one of %s", strings.Join([]string{CorrectToken, CorrectSequence}, ", "))
	case slices.Contains([]string{CorrectToken, CorrectSequence}, k.Level) && !stated:
		c.add(path+".cap", "is 0 and there is no mask: weights would be without a bound")
	}
}
