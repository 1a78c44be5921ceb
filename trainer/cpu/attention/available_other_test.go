//go:build !goexperiment.simd || !amd64

package attention

// available are the kernels of this binary.
func available() map[string]*Kernels { return map[string]*Kernels{"scalar": Scalar()} }
