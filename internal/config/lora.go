package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// LoRA is which adapters are trained in place of the weights: the network computes with
// W + alpha/rank B A (Hu et al., LoRA, 2021). Policies are published with the adapters
// added, so that engines of any kind load them.
type LoRA struct {
	// Rank is the rank of the adapters; 0 trains the weights themselves.
	Rank int `yaml:"rank,omitempty" json:"rank,omitempty" range:"0..4096"`
	// Alpha scales the adapters, over rank; 0 stands for twice the rank.
	Alpha float64 `yaml:"alpha,omitempty" json:"alpha,omitempty" range:"0..1e+06"`
	// Targets are the projections that have adapters: q_proj, k_proj, v_proj, o_proj,
	// gate_proj, up_proj, down_proj. Empty means all of them.
	Targets []string `yaml:"targets,omitempty" json:"targets,omitempty"`
}

// Scale is Alpha with its default.
func (l LoRA) Scale() float64 { return cmp.Or(l.Alpha, 2*float64(l.Rank)) }

// LoRATargets lists the projections that can have adapters.
func LoRATargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

// checkLoRA checks what one tag cannot say.
func checkLoRA(c *checker, r Run) {
	l := r.Trainer.LoRA
	for i, t := range l.Targets {
		key := fmt.Sprintf("trainer.lora.targets[%d]", i)
		switch {
		case !slices.Contains(LoRATargets(), t):
			c.add(key, "is %q, want one of %s", t, strings.Join(LoRATargets(), ", "))
		case slices.Contains(l.Targets[:i], t):
			c.add(key, "names %s twice", t)
		}
	}
	if l.Rank == 0 {
		if l.Alpha != 0 || len(l.Targets) > 0 {
			c.add("trainer.lora.rank", "is 0, which trains no adapters, beside alpha or targets: want a rank, such as 16")
		}
		return
	}
	if !r.Model.Starts() {
		c.add("trainer.lora", "trains adapters beside weights that stay as they are, and this run starts from random ones: want model.path or model.run")
	}
	frozen := func(key string, o Optimizer) {
		if len(o.Freeze) > 0 {
			c.add(key+".freeze", "has no part beside trainer.lora, which trains its adapters alone")
		}
	}
	frozen("sft.optimizer", r.SFT.Optimizer)
	frozen("rl.optimizer", r.RL.Optimizer)
}
