//go:build goexperiment.simd && amd64

package decode

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"temper/trainer/cpu/kernels"
)

// arithmetic holds the vector operations of a pass. Each variant of the backend's kernels adds
// in another order, and so has another arithmetic.
type arithmetic struct {
	// tile is the function for the next of some rows of a product, with how many it takes.
	tile func(rows int, wide bool) (tileFunc, int)
	// turnFloat32 and turnBFloat16 turn 16 rows of a weight; see turn256_amd64.s and turn512_amd64.s.
	turnFloat32, turnBFloat16 func(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)

	sum          func(x []float32) float32
	sumOfSquares func(x []float32) float32 // of a multiple of 16
	// scale puts x*by*weight into out.
	scale func(out, x, weight []float32, by float32)
	// add adds y to x.
	add func(x, y []float32)
	// swiglu puts gate*sigmoid(gate)*up into out.
	swiglu func(out, gate, up []float32)

	// score fills the weights of a head with softmax over a context of n tokens.
	score func(c *Cache, layer int, blocks []int32, h head, n int, scale float32)
	// mix adds up the values of all heads, weighted: out [heads, E].
	mix func(c *Cache, layer int, blocks []int32, heads []head, n int, out []float32)

	// soften replaces scores by their distance below the highest after the product with
	// scale, and puts the exponentials of these into weights.
	soften func(scores, weights []float32, scale float32)
	// countUpTo is the number of elements that do not exceed a limit.
	countUpTo func(x []float32, limit float32) int32
}

// arithmeticOf returns the arithmetic of a choice of kernels, or why there is none.
func arithmeticOf(c kernels.Choice) (*arithmetic, error) {
	k := kernels.Describe(c)
	switch {
	case k.Elementwise != "simd":
		return nil, fmt.Errorf("functions of elements are %s, want simd", k.Elementwise)
	case k.Variant == kernels.AVX512:
		return &arithmetic512, nil
	case k.Variant == kernels.AVX2 && slices.Contains(k.Features, "fma"):
		return &arithmetic256, nil
	}
	return nil, fmt.Errorf("%s kernels, want %s, or %s with FMA", k.Variant, kernels.AVX512, kernels.AVX2)
}

// width is the number of float32 of which a head and a row are multiples.
const width = 16

// negativeInfinity begins a maximum.
var negativeInfinity = float32(math.Inf(-1))
