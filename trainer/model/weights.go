package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/rl"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/tensor"
)

// ScopeName is the scope of all weights below the root of a store.
const ScopeName = "model"

// Tensor is one weight on the host.
type Tensor = tensor.Named

// VariablePath is where the store keeps the weight with a Hugging Face name.
func VariablePath(name string) string { return ml.JoinPath("/", ScopeName, name) }

// Init fills the store with the start weights of the seed, one tensor after another, in the
// memory of a backend; see hostmem.NewTensor.
func Init(backend compute.Backend, store *ml.Store, cfg Config, seed uint64) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	for _, spec := range cfg.Tensors() {
		v, err := hostmem.NewTensor(backend, spec.Shape, func(flat []float32) { draw(flat, spec, seed) })
		if err == nil {
			err = setVariable(store, VariablePath(spec.Name), v)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", spec.Name, err)
		}
	}
	return nil
}

// InitialTensors returns the start weights of the seed in the order of
// Config.Tensors. Each tensor draws from a stream of its own, so its values do not
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

// ByName returns a lookup for Import and ImportDecode.
func ByName(ts []Tensor) func(name string) (Tensor, bool) { return tensor.ByName(ts) }

// initial draws the start values of one tensor.
func initial(spec TensorSpec, seed uint64) Tensor {
	t := Tensor{Name: spec.Name, Shape: spec.Shape, Data: make([]float32, spec.Size())}
	draw(t.Data, spec, seed)
	return t
}

// draw fills values with the start values of a tensor.
func draw(values []float32, spec TensorSpec, seed uint64) {
	random := rl.Rand(rl.Seed(seed, "init", rl.Hash(spec.Name)))
	for i := range values {
		switch {
		case spec.Zeros:
			values[i] = 0
		case spec.Std == 0:
			values[i] = 1
		default:
			values[i] = float32(random.NormFloat64() * spec.Std)
		}
	}
}

// Import puts every weight of the configuration into the store, in place of those that
// are there, in the memory of a backend; see hostmem.NewTensor. The data is copied. The error names
// all missing tensors and wrong shapes; the store is then unchanged.
func Import(backend compute.Backend, store *ml.Store, cfg Config, lookup func(name string) (Tensor, bool)) error {
	if err := cfg.CheckTensors(lookup); err != nil {
		return err
	}
	for _, spec := range cfg.Tensors() {
		t, _ := lookup(spec.Name) // checked above
		v, err := hostmem.NewTensor(backend, spec.Shape, func(flat []float32) { hostmem.Copy(flat, t.Data) })
		if err == nil {
			err = setVariable(store, VariablePath(spec.Name), v)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", spec.Name, err)
		}
	}
	return nil
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

// setVariable creates the variable or replaces its value.
func setVariable(store *ml.Store, path string, value *tensors.Tensor) error {
	if v := store.GetVariable(path); v != nil {
		return v.SetValue(value)
	}
	_, err := store.CreateVariable(path, value)
	return err
}
