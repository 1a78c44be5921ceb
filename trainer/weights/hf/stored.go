package hf

import (
	"fmt"

	"temper/trainer/weights/tensor"
)

// Mapped gives the weights of an open directory where they lie.
type Mapped struct{ Model *Model }

// Close closes the directory.
func (w Mapped) Close() error { return w.Model.Close() }

// Stored returns a weight where it lies: in the file's memory until Close, if the file has
// it in F32 or BF16; else as a copy in float32.
func (w Mapped) Stored(name string) (tensor.Stored, error) {
	m := w.Model
	file, ok := m.at[name]
	if !ok {
		return tensor.Stored{}, fmt.Errorf("%s: tensor %s is missing", m.path, name)
	}
	f32, bf16, ok, err := file.View(name)
	if err != nil {
		return tensor.Stored{}, fmt.Errorf("%s: %w", m.path, err)
	}
	if !ok {
		t, err := m.Tensor(name)
		return t.Stored(), err
	}
	info, _ := file.Lookup(name)
	return tensor.Stored{Name: name, Shape: info.Shape, Float32: f32, BFloat16: bf16}, nil
}
