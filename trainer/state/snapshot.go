package state

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/checkpoint"
	"temper/trainer/hostmem"
	"temper/trainer/optimizer"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

// Snapshot copies the full state to the host. It writes into the memory of
// reusable, an earlier snapshot that nobody reads any more, wherever the sizes are
// the same; the zero State has no memory to reuse.
func (s *State) Snapshot(reusable checkpoint.State) (checkpoint.State, error) {
	if !s.ready {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", ErrNone)
	}
	out := checkpoint.State{Counters: s.counters, Model: s.network}
	var err error
	if out.Weights, err = copyOut(s.store, s.network, qwen3.VariablePath, reusable.Weights); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", err)
	}
	if want := len(s.network.Tensors()); len(out.Weights) != want {
		return checkpoint.State{}, fmt.Errorf("snapshot: %d tensors of %d", len(out.Weights), want)
	}
	if s.counters.Updates == 0 {
		return out, nil // all moments are zero
	}
	if out.FirstMoments, err = copyOut(s.store, s.network, optimizer.FirstMomentPath, reusable.FirstMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: first moments: %w", err)
	}
	if out.SecondMoments, err = copyOut(s.store, s.network, optimizer.SecondMomentPath, reusable.SecondMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: second moments: %w", err)
	}
	return out, nil
}

// Weights copies the weights to the host.
func (s *State) Weights() ([]tensor.Named, error) {
	if !s.ready {
		return nil, fmt.Errorf("weights: %w", ErrNone)
	}
	return qwen3.Export(s.store, s.network)
}

// Weight copies one weight to the host.
func (s *State) Weight(name string) (tensor.Named, error) {
	if !s.ready {
		return tensor.Named{}, fmt.Errorf("weight %s: %w", name, ErrNone)
	}
	return qwen3.ExportTensor(s.store, s.network, name)
}

// copyOut copies the tensors of one kind to the host. Frozen tensors have no
// moments to copy.
func copyOut(store *model.Store, network qwen3.Config, path func(name string) string, reusable []tensor.Named) ([]tensor.Named, error) {
	earlier := tensor.ByName(reusable)
	var out []tensor.Named
	for _, spec := range network.Tensors() {
		v := store.GetVariable(path(spec.Name))
		if v == nil {
			continue
		}
		value, err := v.Value()
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", spec.Name, err)
		}
		if got := value.Shape().Dimensions; !slices.Equal(got, spec.Shape) {
			return nil, fmt.Errorf("tensor %s: shape %v, want %v", spec.Name, got, spec.Shape)
		}
		old, _ := earlier(spec.Name)
		data := old.Data
		if len(data) != spec.Size() {
			data = hostmem.Floats(spec.Size())
		}
		if err := copyValue(data, value); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", spec.Name, err)
		}
		out = append(out, tensor.Named{Name: spec.Name, Shape: spec.Shape, Data: data})
	}
	return out, nil
}

// copyValue copies a value to dst. A value that lies on a device alone is read
// straight from there: reading it through the tensor would leave a second copy on
// the host.
func copyValue(dst []float32, value *tensors.Tensor) error {
	if value.IsLocal() || !value.IsOnAnyDevice() {
		return readValue(dst, value)
	}
	backend, err := value.Backend()
	if err != nil {
		return err
	}
	if backend.HasSharedBuffers() {
		return readValue(dst, value)
	}
	device, err := value.Device()
	if err != nil {
		return err
	}
	buffer, err := value.Buffer(backend, device)
	if err != nil {
		return err
	}
	return buffer.ToFlatData(dst)
}

// readValue copies a value that lies on the host.
func readValue(dst []float32, value *tensors.Tensor) error {
	return tensors.ConstFlatData(value, func(flat []float32) { hostmem.Copy(dst, flat) })
}
