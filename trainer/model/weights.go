package model

import (
	"errors"
	"fmt"
	"slices"

	"temper/internal/rl"
	"temper/trainer/weights/tensor"
)

// Tensor is one weight on the host.
type Tensor = tensor.Named

// InitialTensors returns the start weights of the seed in the order of
// Config.Tensors. Each tensor draws from its own stream, so its values do not
// depend on the other tensors.
func InitialTensors(cfg Config, seed uint64) ([]Tensor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var ts []Tensor
	for _, spec := range cfg.Tensors() {
		ts = append(ts, initial(spec, seed))
	}
	return ts, nil
}

// ByName returns a lookup among tensors.
func ByName(ts []Tensor) func(name string) (Tensor, bool) { return tensor.ByName(ts) }

// initial draws the start values of one tensor.
func initial(spec TensorSpec, seed uint64) Tensor {
	t := Tensor{Name: spec.Name, Shape: spec.Shape, Data: make([]float32, spec.Size())}
	spec.Draw(t.Data, seed)
	return t
}

// Draw fills values with the tensor's start values of a seed.
func (t TensorSpec) Draw(values []float32, seed uint64) {
	random := rl.Rand(rl.Seed(seed, "init", rl.Hash(t.Name)))
	for i := range values {
		switch {
		case t.Zeros:
			values[i] = 0
		case t.Std == 0:
			values[i] = 1
		default:
			values[i] = float32(random.NormFloat64() * t.Std)
		}
	}
}

// CheckTensors reports every weight that is missing or has a wrong shape.
func (c Config) CheckTensors(lookup func(name string) (Tensor, bool)) error {
	return c.CheckStored(func(name string) (tensor.Stored, bool) {
		t, ok := lookup(name)
		return t.Stored(), ok
	})
}

// CheckStored is CheckTensors for weights where they lie.
func (c Config) CheckStored(lookup tensor.Lookup) error {
	var errs []error
	for _, spec := range c.Tensors() {
		t, ok := lookup(spec.Name)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("tensor %s is missing", spec.Name))
		case !slices.Equal(t.Shape, spec.Shape):
			errs = append(errs, fmt.Errorf("tensor %s: shape %v, want %v", spec.Name, t.Shape, spec.Shape))
		case t.Len() != spec.Size():
			errs = append(errs, fmt.Errorf("tensor %s: %d values, shape %v wants %d", spec.Name, t.Len(), spec.Shape, spec.Size()))
		}
	}
	return errors.Join(errs...)
}
