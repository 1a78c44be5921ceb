// Package vector computes with vectors of sixteen or eight float32, in the same order of
// operations as GoMLX's Go backend, so that the kernels of this program keep its bits.
// Vectors of sixteen need AVX-512 and vectors of eight AVX2, both under GOEXPERIMENT=simd;
// elsewhere the package is empty.
package vector
