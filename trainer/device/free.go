package device

import "github.com/gomlx/gomlx/core/tensors"

// Free releases the memory of tensors now instead of at the next garbage collection.
func Free(xs ...*tensors.Tensor) {
	for _, x := range xs {
		_ = x.FinalizeAll() // fails only for a freed buffer
	}
}
