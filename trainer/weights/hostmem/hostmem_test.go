package hostmem_test

import (
	"slices"
	"testing"

	"temper/trainer/weights/hostmem"
)

func TestMemoryIsZeroAndWritable(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 19, 5<<20 + 3} {
		values := hostmem.Floats(n)
		if len(values) != n || slices.ContainsFunc(values, func(v float32) bool { return v != 0 }) {
			t.Errorf("%d values: have %d, or one that is not zero", n, len(values))
		}
		for i := range values {
			values[i] = float32(i)
		}
	}
}

// TestCopyLeavesNothingOut covers lengths around the share of a goroutine.
func TestCopyLeavesNothingOut(t *testing.T) {
	for _, n := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 7} {
		src := make([]float32, n)
		for i := range src {
			src[i] = float32(i + 1)
		}
		dst := make([]float32, n+1)
		hostmem.Copy(dst[:n], src)
		if !slices.Equal(dst[:n], src) || dst[n] != 0 {
			t.Errorf("%d values: the copy differs", n)
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	const n = 1 << 28
	src, dst := hostmem.Floats(n), hostmem.Floats(n)
	for i := range src { // else all of its pages are one page of zeros
		src[i] = float32(i)
	}
	hostmem.Copy(dst, src)
	b.SetBytes(4 * n)
	for b.Loop() {
		hostmem.Copy(dst, src)
	}
}
