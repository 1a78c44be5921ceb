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
	// LR is the learning rate at its peak, at the end of warm-up.
	LR    float64 `yaml:"lr" json:"lr"`
	Beta1 float64 `yaml:"beta1" json:"beta1"` // decay of the mean of gradients per update
	Beta2 float64 `yaml:"beta2" json:"beta2"` // decay of the mean of their squares
	Eps   float64 `yaml:"eps" json:"eps"`     // added to the root of the mean square
	// WeightDecay, times the learning rate, is the part of a weight that an update
	// takes away. It spares norms, biases and the embedding table.
	WeightDecay float64 `yaml:"weight_decay" json:"weight_decay"`
	// DecayVectors applies it to norms and biases too.
	DecayVectors bool `yaml:"decay_vectors,omitempty" json:"decay_vectors,omitempty"`
	// DecayEmbeddings applies it to the embedding table too, a tied head included.
	DecayEmbeddings bool `yaml:"decay_embeddings,omitempty" json:"decay_embeddings,omitempty"`
	// MaxGradNorm bounds the global norm of the gradient of an update; 0 = no clipping.
	MaxGradNorm float64 `yaml:"max_grad_norm" json:"max_grad_norm"`
	// SkipGradNorm leaves an update out whose norm before clipping is above it: a
	// spike then enters neither weights nor moments. 0 = never.
	SkipGradNorm float64 `yaml:"skip_grad_norm,omitempty" json:"skip_grad_norm,omitempty"`
	WarmupSteps  int     `yaml:"warmup_steps" json:"warmup_steps"`
	// Schedule after warm-up: constant, linear, cosine or wsd. One that decays
	// reaches its floor one step after the last.
	Schedule string `yaml:"schedule" json:"schedule"`
	// MinLRRatio is the floor of the schedule as a part of LR.
	MinLRRatio float64 `yaml:"min_lr_ratio,omitempty" json:"min_lr_ratio,omitempty"`
	// DecaySteps is the length of wsd's decay, at the end of the schedule.
	DecaySteps int `yaml:"decay_steps,omitempty" json:"decay_steps,omitempty"`
	// Freeze holds patterns (path.Match) of names of tensors that stay as they are,
	// for example "model.embed_tokens*". A pattern must match a tensor.
	Freeze []string `yaml:"freeze,omitempty" json:"freeze,omitempty"`
}

// FreshMoments reports whether the optimizer's moments are zero at the stage's start.
func (s Stage) FreshMoments() bool { return s.ResetOptimizer || s.ResetMoments }

// FreshSchedule reports whether warm-up and schedule begin at the stage's start.
func (s Stage) FreshSchedule() bool { return s.ResetOptimizer || s.ResetSchedule }

func (c *checker) optimizer(key string, o Optimizer) {
	c.within(key+".lr", o.LR, 1e-12, 1)
	c.within(key+".beta1", o.Beta1, 0, 0.9999)
	c.within(key+".beta2", o.Beta2, 0, 0.99999)
	c.within(key+".eps", o.Eps, 1e-16, 1e-2)
	c.within(key+".weight_decay", o.WeightDecay, 0, 1)
	c.within(key+".max_grad_norm", o.MaxGradNorm, 0, 1e6)
	c.within(key+".skip_grad_norm", o.SkipGradNorm, 0, 1e30)
	c.atLeast(key+".warmup_steps", o.WarmupSteps, 0)
	c.oneOf(key+".schedule", o.Schedule, []string{ScheduleConstant, ScheduleLinear, ScheduleCosine, ScheduleWSD})
	c.within(key+".min_lr_ratio", o.MinLRRatio, 0, 1)
	c.atLeast(key+".decay_steps", o.DecaySteps, 0)
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
