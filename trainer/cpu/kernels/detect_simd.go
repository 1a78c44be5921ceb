//go:build goexperiment.simd && amd64

package kernels

import (
	"os"
	"simd"
	"simd/archsimd"
	"strings"
)

// elementwise functions give the same bits for any length of vectors. The emulation, with
// GODEBUG=simd=0, rounds a product and a sum twice.
func elementwise() string {
	if simd.Emulated() {
		return "emulated"
	}
	return "simd"
}

// vectorLanes returns the number of float32 in a vector of package simd. A CPU without
// VPCLMULQDQ has 4 there, whatever its vectors.
func vectorLanes() int { return simd.VectorBitSize() / 32 }

// nativeVariant returns the choice of the backend at the start of the process. It asks the
// same package, which also reads GODEBUG (cpu.avx512f=off), and the same variables of the
// environment.
func nativeVariant() Variant {
	switch {
	case archsimd.X86.AVX512() && allowed("GOMLX_GO_SIMD_AVX512"):
		return AVX512
	case archsimd.X86.AVX2() && allowed("GOMLX_GO_SIMD_AVX2"):
		return AVX2
	}
	return Scalar
}

// allowed reports whether a variable leaves kernels switched on. The backend refuses to start
// with an unknown word.
func allowed(name string) bool {
	switch strings.ToLower(os.Getenv(name)) {
	case "0", "false", "f", "no", "off", "disabled":
		return false
	}
	return true
}

// nativeDepth returns the depth of the panels in the backend's kernel for large products.
func nativeDepth() int { return depths[nativeVariant()] }

// features returns the used features, sorted.
func features() []string {
	var out []string
	v := nativeVariant()
	if v != Scalar {
		out = append(out, "avx2")
	}
	if v == AVX512 {
		out = append(out, "avx512")
	}
	if archsimd.X86.FMA() {
		out = append(out, "fma")
	}
	return out
}
