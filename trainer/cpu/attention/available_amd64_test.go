//go:build goexperiment.simd && amd64

package attention

import "simd/archsimd"

// available are the kernels of this CPU.
func available() map[string]*Kernels {
	out := map[string]*Kernels{"scalar": Scalar()}
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		out["avx2"] = AVX2()
	}
	if archsimd.X86.AVX512() {
		out["avx512"] = AVX512()
	}
	return out
}
