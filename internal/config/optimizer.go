package config

import (
	"fmt"
	"path"
)

// Schedules of the learning rate after warm-up.
const (
	ScheduleConstant = "constant" // the peak for ever
	ScheduleLinear   = "linear"   // from the peak to the floor in a straight line
	ScheduleCosine   = "cosine"   // half a period of a cosine from the peak to the floor
	ScheduleWSD      = "wsd"      // warm-up, stable, decay: the peak until DecaySteps before the end, then linear
)

// Optimizer is AdamW (arXiv 1711.05101) with linear warm-up and a schedule. The
// zero value of every switch leaves it out.
type Optimizer struct {
	// LR is the highest learning rate, at the end of warm-up.
	LR float64 `yaml:"lr" json:"lr" range:"1e-12..1" amend:"yes"`
	// Beta1 is the decay of the mean of gradients, per update.
	Beta1 float64 `yaml:"beta1" json:"beta1" range:"0..0.9999" amend:"yes"`
	// Beta2 is the decay of the mean of squared gradients, per update.
	Beta2 float64 `yaml:"beta2" json:"beta2" range:"0..0.99999" amend:"yes"`
	// Eps is added to the root of the mean square.
	Eps float64 `yaml:"eps" json:"eps" range:"1e-16..0.01" amend:"yes"`
	// WeightDecay is the share of a weight that an update takes away, times the learning
	// rate. It spares norms, biases and the embedding table.
	WeightDecay float64 `yaml:"weight_decay" json:"weight_decay" range:"0..1" amend:"yes"`
	// DecayVectors applies weight_decay to norms and biases too.
	DecayVectors bool `yaml:"decay_vectors,omitempty" json:"decay_vectors,omitempty"`
	// DecayEmbeddings applies weight_decay to the embedding table too, and so to a tied head.
	DecayEmbeddings bool `yaml:"decay_embeddings,omitempty" json:"decay_embeddings,omitempty"`
	// MaxGradNorm bounds the global norm of the gradient of an update; 0 means no clipping.
	MaxGradNorm float64 `yaml:"max_grad_norm" json:"max_grad_norm" range:"0..1e+06" amend:"yes"`
	// SkipGradNorm skips an update whose gradient has a norm above it, before clipping.
	// A spike then reaches neither weights nor moments. 0 means never.
	SkipGradNorm float64 `yaml:"skip_grad_norm,omitempty" json:"skip_grad_norm,omitempty" range:"0..1e+30" amend:"yes"`
	// WarmupSteps is the number of steps in which the learning rate rises from 0 to lr.
	WarmupSteps int `yaml:"warmup_steps" json:"warmup_steps" range:"0.." unit:"steps" amend:"yes"`
	// Schedule is the learning rate after warm-up. constant stays at lr; linear and
	// cosine fall to the floor over the rest of the steps; wsd stays at lr until
	// decay_steps before the end and then falls in a straight line. A schedule that
	// falls reaches its floor one step after the last.
	Schedule string `yaml:"schedule" json:"schedule" enum:"constant|linear|cosine|wsd" amend:"yes"`
	// MinLRRatio is the floor of the schedule as a share of lr.
	MinLRRatio float64 `yaml:"min_lr_ratio,omitempty" json:"min_lr_ratio,omitempty" range:"0..1" amend:"yes"`
	// DecaySteps is the length of the decay of wsd, at the end of the schedule.
	DecaySteps int `yaml:"decay_steps,omitempty" json:"decay_steps,omitempty" range:"0.." unit:"steps" amend:"yes"`
	// Freeze holds patterns (path.Match) of names of tensors that stay as they are, for
	// example "model.embed_tokens*". A pattern must match a tensor.
	Freeze []string `yaml:"freeze,omitempty" json:"freeze,omitempty"`
}

// FreshMoments reports whether the optimizer's moments are zero at the stage's start.
func (s Stage) FreshMoments() bool { return s.ResetOptimizer || s.ResetMoments }

// FreshSchedule reports whether warm-up and schedule begin at the stage's start.
func (s Stage) FreshSchedule() bool { return s.ResetOptimizer || s.ResetSchedule }

// optimizer checks what one tag cannot say.
func (c *checker) optimizer(key string, o Optimizer) {
	if o.Schedule == ScheduleConstant && o.MinLRRatio != 0 {
		c.add(key+".min_lr_ratio", "is %g, but the constant schedule has no floor", o.MinLRRatio)
	}
	if (o.Schedule == ScheduleWSD) != (o.DecaySteps > 0) {
		c.add(key+".decay_steps", "is %d with schedule %q: wsd, and no other, decays in the last decay_steps", o.DecaySteps, o.Schedule)
	}
	for i, pattern := range o.Freeze {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			c.add(fmt.Sprintf("%s.freeze[%d]", key, i), "is %q, want a pattern such as \"model.layers.0.*\"", pattern)
		}
	}
}

// resets refuses a part beside the whole: one of the two lines is a mistake.
func (c *checker) resets(key string, s Stage) {
	if s.ResetOptimizer && s.ResetMoments {
		c.add(key+".reset_moments", "is part of reset_optimizer: state one of them")
	}
	if s.ResetOptimizer && s.ResetSchedule {
		c.add(key+".reset_schedule", "is part of reset_optimizer: state one of them")
	}
}
