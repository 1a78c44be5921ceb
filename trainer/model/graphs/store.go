package graphs

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/weights/hostmem"

	"temper/trainer/model"
)

// ScopeName is the scope of all weights below the root of a store.
const ScopeName = "model"

// VariablePath is where the store keeps the weight with a Hugging Face name.
func VariablePath(name string) string { return ml.JoinPath("/", ScopeName, name) }

// Init fills the store with the start weights of the seed, one tensor after another, in the
// memory of a backend; see hostmem.NewTensor.
func Init(backend compute.Backend, store *ml.Store, cfg model.Config, seed uint64) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	for _, spec := range cfg.Tensors() {
		v, err := hostmem.NewTensor(backend, spec.Shape, func(flat []float32) { spec.Draw(flat, seed) })
		if err == nil {
			err = setVariable(store, VariablePath(spec.Name), v)
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", spec.Name, err)
		}
	}
	return nil
}

// Import puts every weight of the configuration into the store, in place of those that
// are there, in the memory of a backend; see hostmem.NewTensor. The data is copied. The error names
// all missing tensors and wrong shapes; the store is then unchanged.
func Import(backend compute.Backend, store *ml.Store, cfg model.Config, lookup func(name string) (model.Tensor, bool)) error {
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

// setVariable creates the variable or replaces its value.
func setVariable(store *ml.Store, path string, value *tensors.Tensor) error {
	if v := store.GetVariable(path); v != nil {
		return v.SetValue(value)
	}
	_, err := store.CreateVariable(path, value)
	return err
}
