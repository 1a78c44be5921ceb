package qwen3

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// NewValue returns a float32 tensor that fill has filled; without fill it is zero. It lies in
// the memory of a backend that the host can reach, and is held there once; otherwise, also
// without a backend, it lies on the host until a graph takes a copy.
func NewValue(backend compute.Backend, dims []int, fill func(flat []float32)) (*tensors.Tensor, error) {
	t, err := tensors.FromShapeForBackend(backend, 0, shapes.Make(dtypes.Float32, dims...))
	if err != nil {
		return nil, fmt.Errorf("make a tensor %v: %w", dims, err)
	}
	if fill == nil || t.Size() == 0 {
		return t, nil
	}
	if err := tensors.MutableFlatData(t, fill); err != nil {
		return nil, fmt.Errorf("fill a tensor %v: %w", dims, err)
	}
	return t, nil
}
