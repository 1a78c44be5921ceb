//go:build goexperiment.simd && amd64

package decode

import (
	"math"
	"simd/archsimd"
	"testing"
)

// TestNaNStays: a score that is none, behind the last full vector, makes its weight none, and an answer with it.
func TestNaNStays(t *testing.T) {
	for _, c := range []struct {
		name   string
		can    bool
		lanes  int
		weigh  func(w []float32, full, n int, most float32)
		places []int
	}{
		{"256", archsimd.X86.AVX2() && archsimd.X86.FMA(), 8, softmax256, []int{3, 8 + 5}},
		{"512", archsimd.X86.AVX512(), 16, softmax512, []int{3, 16 + 5}},
	} {
		if !c.can {
			continue
		}
		for _, n := range c.places {
			w := make([]float32, 4*c.lanes)
			for i := range n {
				w[i] = float32(i) / 8
			}
			w[n-1] = float32(math.NaN())
			c.weigh(w, n/c.lanes*c.lanes, n, float32(n-2)/8)
			if w[n-1] == w[n-1] {
				t.Errorf("%s lanes, %d scores: the weight of NaN is %v", c.name, n, w[n-1])
			}
		}
	}
}
