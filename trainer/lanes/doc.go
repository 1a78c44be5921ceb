// Package lanes computes with sixteen float32 side by side, operation by operation as
// GoMLX's Go backend does, so that kernels of our own keep its bits. It is for AVX-512
// under GOEXPERIMENT=simd; elsewhere it is empty.
package lanes
