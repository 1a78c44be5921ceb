// Package vector computes with sixteen or eight float32 side by side, operation by operation
// as GoMLX's Go backend does, so that kernels of our own keep its bits. Vectors of sixteen
// are for AVX-512 and those of eight for AVX2, both under GOEXPERIMENT=simd; elsewhere the
// package is empty.
package vector
