package trainer

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/checkpoint"
	"temper/trainer/hostmem"
	"temper/trainer/qwen3"
)

// snapshot copies the state into the memory of room.
func (t *Trainer) snapshot(room checkpoint.State) (checkpoint.State, error) {
	if !t.ready {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", ErrNoState)
	}
	s := checkpoint.State{Counters: t.counters, Model: t.cfg.Model}
	var err error
	if s.Weights, err = t.copyOut(qwen3.VariablePath, room.Weights); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: %w", err)
	}
	if want := len(t.cfg.Model.Tensors()); len(s.Weights) != want {
		return checkpoint.State{}, fmt.Errorf("snapshot: %d tensors of %d", len(s.Weights), want)
	}
	if t.counters.Updates == 0 {
		return s, nil // all moments are zero
	}
	if s.FirstMoments, err = t.copyOut(firstMomentPath, room.FirstMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: first moments: %w", err)
	}
	if s.SecondMoments, err = t.copyOut(secondMomentPath, room.SecondMoments); err != nil {
		return checkpoint.State{}, fmt.Errorf("snapshot: second moments: %w", err)
	}
	return s, nil
}

// copyOut copies the tensors of one kind to the host, those that there are: the
// moments of frozen ones are not.
func (t *Trainer) copyOut(path func(name string) string, room []qwen3.Tensor) ([]qwen3.Tensor, error) {
	earlier := lookup(room)
	var out []qwen3.Tensor
	for _, spec := range t.cfg.Model.Tensors() {
		v := t.store.GetVariable(path(spec.Name))
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
		out = append(out, qwen3.Tensor{Name: spec.Name, Shape: spec.Shape, Data: data})
	}
	return out, nil
}

// copyValue copies a value to dst. What lies on a device alone comes straight
// from there: reading it through the tensor leaves a second copy on the host.
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
