package optimizer

import (
	"fmt"
	"slices"

	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/tensor"
)

// Snapshot copies the full state to the host. It writes into the memory of reusable, an
// earlier unused snapshot, where the sizes are the same; the zero State has no memory to reuse.
func (s *State) Snapshot(reusable checkpoint.State) (checkpoint.State, error) {
	if !s.ready {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", ErrNone)
	}
	out := checkpoint.State{Counters: s.counters, Model: s.network}
	var err error
	if out.Weights, err = copyOut(s.store, s.network, graphs.VariablePath, reusable.Weights); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", err)
	}
	if want := len(s.network.Tensors()); len(out.Weights) != want {
		return checkpoint.State{}, fmt.Errorf("snapshot: %d tensors of %d", len(out.Weights), want)
	}
	if s.counters.Updates == 0 {
		return out, nil // all moments are zero
	}
	if out.FirstMoments, err = copyOut(s.store, s.network, FirstMomentPath, reusable.FirstMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: first moments: %w", err)
	}
	if out.SecondMoments, err = copyOut(s.store, s.network, SecondMomentPath, reusable.SecondMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: second moments: %w", err)
	}
	return out, nil
}

// Weights copies the weights to the host.
func (s *State) Weights() ([]tensor.Named, error) {
	if !s.ready {
		return nil, fmt.Errorf("weights: %w", ErrNone)
	}
	weights, err := copyOut(s.store, s.network, graphs.VariablePath, nil)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	return weights, nil
}

// Weight copies one weight to the host.
func (s *State) Weight(name string) (tensor.Named, error) {
	if !s.ready {
		return tensor.Named{}, fmt.Errorf("weight %s: %w", name, ErrNone)
	}
	for _, spec := range s.network.Tensors() {
		if spec.Name == name {
			return copyTensor(s.store.GetVariable(graphs.VariablePath(name)), spec, nil)
		}
	}
	return tensor.Named{}, fmt.Errorf("tensor %s is not one of the model", name)
}

// copyOut copies the tensors of one kind to the host. Frozen tensors have no moments.
func copyOut(store *ml.Store, network model.Config, path func(name string) string, reusable []tensor.Named) ([]tensor.Named, error) {
	earlier := tensor.ByName(reusable)
	var out []tensor.Named
	for _, spec := range network.Tensors() {
		v := store.GetVariable(path(spec.Name))
		if v == nil {
			continue
		}
		old, _ := earlier(spec.Name)
		t, err := copyTensor(v, spec, old.Data)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// copyTensor copies the tensor of a variable to the host, into data if that has its size.
func copyTensor(v *ml.Variable, spec model.TensorSpec, data []float32) (tensor.Named, error) {
	if got := v.Shape().Dimensions; !slices.Equal(got, spec.Shape) {
		return tensor.Named{}, fmt.Errorf("tensor %s: shape %v, want %v", spec.Name, got, spec.Shape)
	}
	if len(data) != spec.Size() {
		data = hostmem.Floats(spec.Size())
	}
	if err := device.ReadVariable(data, v); err != nil {
		return tensor.Named{}, fmt.Errorf("tensor %s: %w", spec.Name, err)
	}
	return tensor.Named{Name: spec.Name, Shape: spec.Shape, Data: data}, nil
}
