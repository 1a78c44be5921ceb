//go:build !goexperiment.simd || !amd64

package kernels

import (
	"unsafe"

	_ "github.com/gomlx/compute/gobackend" // owns the variable below

	"temper/trainer/blockwise"
)

//go:linkname attention github.com/gomlx/compute/internal/gobackend.sdpaFloat32ArchFn
var attention unsafe.Pointer

// tables teaches the backend's attention to read tables, when the process starts.
var tables = func() attentionFunc {
	f := withTables(nil, nil, blockwise.Scalar())
	attention = *(*unsafe.Pointer)(unsafe.Pointer(&f))
	return f
}()

// put does nothing: there is one set of kernels.
func put(Choice) {}
