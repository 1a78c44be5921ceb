//go:build !goexperiment.simd || !amd64

package blockwise

// available are the kernels of this binary.
func available() map[string]*Kernels { return map[string]*Kernels{"scalar": Scalar()} }
