//go:build goexperiment.simd && amd64

package gomlxhooks_test

import (
	"math"
	"simd/archsimd"
	"slices"
	"testing"

	"temper/trainer/gomlxhooks"
)

func TestExp32(t *testing.T) {
	for _, x := range []float32{-20, -1, 0, 0.5, 3} {
		if got, want := gomlxhooks.Exp32(x), math.Exp(float64(x)); math.Abs(float64(got)-want) > want*1e-6 {
			t.Errorf("Exp32(%g) of github.com/gomlx/compute/internal/fastmath = %g, want %g", x, got, want)
		}
	}
}

// TestAttentionAVX2: the attention over one key is its value.
func TestAttentionAVX2(t *testing.T) {
	if !hasAVX2() {
		t.Skip("no AVX2 (2026-11-27: a machine without it)")
	}
	const dim = 32
	q, k, v, out := make([]float32, dim), make([]float32, dim), make([]float32, dim), make([]float32, dim)
	for i := range dim {
		q[i], k[i], v[i] = 1, float32(i), float32(2*i)
	}
	if !gomlxhooks.AttentionAVX2(q, k, v, out, 0, 0, dim, dim, dim, nil, nil, 0, nil, 0, make([]float32, 8), 1, 1, 1, dim, 1, true, 1, 1) || !slices.Equal(out, v) {
		t.Errorf("DispatchSDPAAVX2 of github.com/gomlx/compute/internal/gobackend/fusedops/avx2 over one key: %v, want %v", out, v)
	}
}

// TestKernelsAVX2 leaves the kernels in use as they were.
func TestKernelsAVX2(t *testing.T) {
	if !hasAVX2() {
		t.Skip("no AVX2 (2026-11-27: a machine without it)")
	}
	before := gomlxhooks.CurrentKernels()
	other := gomlxhooks.KernelsAVX2(gomlxhooks.AttentionAVX2)
	if gomlxhooks.CurrentKernels() != before {
		t.Error("KernelsAVX2 changed the kernels in use")
	}
	other.Install()
	defer before.Install()
	if gomlxhooks.CurrentKernels() != other {
		t.Error("Install did not install")
	}
	if f := gomlxhooks.AttentionKernel(); f == nil {
		t.Error("sdpaFloat32ArchFn of github.com/gomlx/compute/internal/gobackend is nil with kernels for AVX2")
	}
}

func hasAVX2() bool { return archsimd.X86.AVX2() }
