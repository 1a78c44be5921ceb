package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/trainer/weights/tensor"
)

// LoRA adds a product of two small matrices to weights of each layer: the network
// computes with W + Alpha/Rank B A, where A is [Rank, in] and B is [out, Rank] (Hu et al.,
// LoRA, 2021, section 4.1). Training changes A and B alone. The zero LoRA adds nothing.
type LoRA struct {
	Rank  int     `json:"rank"`
	Alpha float64 `json:"alpha"`
	// Targets names the weights, as LoRATargets does, with commas between them.
	Targets string `json:"targets"`
}

// LoRATargets lists the projections that adapters can be added to, by the names that PEFT
// gives them, in the order of a layer.
func LoRATargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

// NewLoRA makes a LoRA of a list of targets, in any order; none are all of LoRATargets.
// The error names every value that is wrong.
func NewLoRA(rank int, alpha float64, targets []string) (LoRA, error) {
	l := LoRA{Rank: rank, Alpha: alpha}
	var names []string
	for _, known := range LoRATargets() {
		if len(targets) == 0 || slices.Contains(targets, known) {
			names = append(names, known)
		}
	}
	l.Targets = strings.Join(names, ",")
	var errs []error
	for _, t := range targets {
		if !slices.Contains(LoRATargets(), t) {
			errs = append(errs, fmt.Errorf("targets: %q, want some of %s", t, strings.Join(LoRATargets(), ", ")))
		}
	}
	return l, errors.Join(append(errs, l.check())...)
}

// check reports numbers that no adapter can have.
func (l LoRA) check() error {
	if l == (LoRA{}) {
		return nil
	}
	var errs []error
	if l.Rank < 1 {
		errs = append(errs, fmt.Errorf("rank: %d, want at least 1", l.Rank))
	}
	if !(l.Alpha > 0) || math.IsInf(l.Alpha, 0) {
		errs = append(errs, fmt.Errorf("alpha: %v, want more than 0", l.Alpha))
	}
	return errors.Join(errs...)
}

// Scale is the factor of the product of the adapters.
func (l LoRA) Scale() float64 { return l.Alpha / float64(l.Rank) }

// Base is the network without adapters, as policies are published.
func (c Config) Base() Config {
	c.LoRA = LoRA{}
	return c
}

// Adapters lists the matrices that LoRA adds, A before B for each weight, in the order of
// the weights. A starts with the variance that PEFT gives it, 1/(3 in), and B with zeros,
// so that the network starts as it was.
func (c Config) Adapters() []TensorSpec {
	if c.LoRA.Rank < 1 {
		return nil
	}
	var out []TensorSpec
	for _, spec := range c.Base().Tensors() {
		if a, b, ok := c.AdaptersOf(spec.Name); ok {
			in := spec.Shape[1]
			out = append(out,
				TensorSpec{Name: a, Shape: []int{c.LoRA.Rank, in}, Std: 1 / math.Sqrt(3*float64(in))},
				TensorSpec{Name: b, Shape: []int{spec.Shape[0], c.LoRA.Rank}, Zeros: true})
		}
	}
	return out
}

// AdaptersOf names the adapters A and B of a weight; ok is false where it has none.
func (c Config) AdaptersOf(name string) (a, b string, ok bool) {
	if c.LoRA.Rank < 1 {
		return "", "", false
	}
	stem, isWeight := strings.CutSuffix(name, ".weight")
	target := stem[strings.LastIndexByte(stem, '.')+1:]
	if !isWeight || !slices.Contains(strings.Split(c.LoRA.Targets, ","), target) {
		return "", "", false
	}
	return stem + ".lora_A.weight", stem + ".lora_B.weight", true
}

// WithAdapters adds the start values of the adapters of a seed to weights that have none.
func WithAdapters(cfg Config, weights []Tensor, seed uint64) []Tensor {
	known := tensor.ByName(weights)
	out := slices.Clone(weights)
	for _, spec := range cfg.Adapters() {
		if _, ok := known(spec.Name); !ok {
			out = append(out, initial(spec, seed))
		}
	}
	return out
}

// Merge adds adapters to weights on the host: the tensors of Base. Products add up in
// float64, so that results differ from graphs.Merged by rounding.
func Merge(cfg Config, weights []Tensor) ([]Tensor, error) {
	known := tensor.ByName(weights)
	var out []Tensor
	for _, spec := range cfg.Base().Tensors() {
		t, ok := known(spec.Name)
		if !ok {
			return nil, fmt.Errorf("tensor %s is missing", spec.Name)
		}
		if nameA, nameB, ok := cfg.AdaptersOf(spec.Name); ok {
			a, hasA := known(nameA)
			b, hasB := known(nameB)
			if !hasA || !hasB {
				return nil, fmt.Errorf("tensor %s: its adapters %s and %s are missing", spec.Name, nameA, nameB)
			}
			t.Data = cfg.LoRA.merge(t.Data, a.Data, b.Data, spec.Shape[1])
		}
		out = append(out, t)
	}
	return out, nil
}

// merge adds the product of adapters to a weight with so many inputs.
func (l LoRA) merge(weight, a, b []float32, in int) []float32 {
	out := make([]float32, len(weight))
	sums := make([]float64, in)
	for row := range len(weight) / in {
		clear(sums)
		for r := range l.Rank {
			x := float64(b[row*l.Rank+r])
			for i, y := range a[r*in:][:in] {
				sums[i] += x * float64(y)
			}
		}
		for i, w := range weight[row*in:][:in] {
			out[row*in+i] = w + float32(l.Scale()*sums[i])
		}
	}
	return out
}
