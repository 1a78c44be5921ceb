//go:build !goexperiment.simd || !amd64

package kernels

// put does nothing: there is one set of kernels.
func put(Choice) {}
