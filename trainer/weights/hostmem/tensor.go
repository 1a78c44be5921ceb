package hostmem

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/gomlxhooks"
)

// NewTensor returns a float32 tensor filled by fill; without fill it is zero. On a backend
// with memory that the host can reach, the tensor lies there alone. On another backend, or
// without one, it lies on the host until a graph copies it.
func NewTensor(backend compute.Backend, dims []int, fill func(flat []float32)) (*tensors.Tensor, error) {
	t, err := tensors.FromShapeForBackend(backend, 0, shapes.Make(dtypes.Float32, dims...))
	if err != nil {
		return nil, fmt.Errorf("make a tensor %v: %w", dims, err)
	}
	if err := reuse(t, backend); err != nil {
		return nil, err
	}
	if fill == nil || t.Size() == 0 {
		return t, nil
	}
	if err := tensors.MutableFlatData(t, fill); err != nil {
		return nil, fmt.Errorf("fill a tensor %v: %w", dims, err)
	}
	return t, nil
}

// reuse lets the CPU backend use the memory of a value again when the value has been
// replaced. Otherwise the first update of a training would allocate everything a second
// time, until the collector runs.
func reuse(t *tensors.Tensor, backend compute.Backend) error {
	if !t.IsShared() {
		return nil
	}
	buffer, err := t.Buffer(backend, 0)
	if err != nil {
		return fmt.Errorf("find the buffer of a tensor: %w", err)
	}
	gomlxhooks.ReuseBuffer(buffer)
	return nil
}
