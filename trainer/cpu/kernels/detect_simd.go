//go:build goexperiment.simd && amd64

package kernels

import (
	"os"
	"simd"
	"simd/archsimd"
	"strings"
)

// elementwise functions give the same bits at any length of vectors. The emulation, which
// GODEBUG=simd=0 asks for, rounds a product and a sum twice.
func elementwise() string {
	if simd.Emulated() {
		return "emulated"
	}
	return "simd"
}

// vectorLanes is the number of float32 in a vector of the package simd. It is that of
// AVX-512 or AVX2 only where the CPU has VPCLMULQDQ, else 4.
func vectorLanes() int { return simd.VectorBitSize() / 32 }

// nativeVariant is what the backend chose when the process started. It asks the CPU
// through the same package, which also reads GODEBUG (cpu.avx512f=off), and the same
// variables of the environment.
func nativeVariant() Variant {
	switch {
	case archsimd.X86.AVX512() && allowed("GOMLX_GO_SIMD_AVX512"):
		return AVX512
	case archsimd.X86.AVX2() && allowed("GOMLX_GO_SIMD_AVX2"):
		return AVX2
	}
	return Scalar
}

// allowed reports whether a variable does not switch kernels off. The backend refuses to
// start with words that it does not know.
func allowed(name string) bool {
	switch strings.ToLower(os.Getenv(name)) {
	case "0", "false", "f", "no", "off", "disabled":
		return false
	}
	return true
}

// nativeDepth is the depth of the panels in the backend's kernel for large products.
func nativeDepth() int { return depths[nativeVariant()] }

// features are those in use, sorted.
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
