package device

import "github.com/gomlx/gomlx/core/tensors"

// Free gives the memory of tensors back now, and not at the next garbage
// collection.
func Free(xs ...*tensors.Tensor) {
	for _, x := range xs {
		_ = x.FinalizeAll() // fails only for a buffer that is gone already
	}
}
