package qwen3

import (
	"slices"

	. "github.com/gomlx/gomlx/core/graph"
)

// product is x [..., N, in] times y [..., out, in] over their last axis, for each
// index of the leading axes: [..., N, out].
//
// The gradient of y, v^T x, contracts the first axis of both factors. The CPU
// backend brings both into its own layout for that, element by element, which
// costs more than the product itself. Transposing only the smaller one gives
// the same sums.
func product(x, y *Node) *Node {
	y = IdentityWithCustomGradient(y, func(_, grad *Node) *Node { return transposeLess(grad) })
	last := x.Rank() - 1
	outer := leading(y.Rank() - 2)
	return DotGeneral(x, []int{last}, outer, y, []int{y.Rank() - 1}, outer)
}

// transposeLess takes the gradient of a product's second factor as GoMLX
// builds it, a product of v [..., N, out] and x [..., N, in] over N, and
// computes it from one transposed factor: [..., out, in]. Anything else it
// returns as it is, which is right too, but slower.
func transposeLess(grad *Node) *Node {
	dot := grad
	for dot.Type() == NodeTypeTranspose { // between equal layouts, see product
		dot = dot.Inputs()[0]
	}
	if dot.Type() != NodeTypeDotGeneral {
		return grad
	}
	v, x := dot.Inputs()[0], dot.Inputs()[1]
	rank := v.Rank()
	outer := leading(rank - 2)
	want := append(slices.Clone(v.Shape().Dimensions[:rank-2]), v.Shape().Dimensions[rank-1], x.Shape().Dimensions[rank-1])
	if !slices.Equal(grad.Shape().Dimensions, want) {
		return grad
	}
	n, out, in := v.Shape().Dimensions[rank-2], want[rank-2], want[rank-1]
	if n*out <= n*in+out*in {
		return DotGeneral(swapLast(v), []int{rank - 1}, outer, x, []int{rank - 2}, outer)
	}
	return swapLast(DotGeneral(swapLast(x), []int{rank - 1}, outer, v, []int{rank - 2}, outer))
}

// swapLast exchanges the last two axes.
func swapLast(x *Node) *Node {
	axes := leading(x.Rank())
	n := len(axes)
	axes[n-2], axes[n-1] = axes[n-1], axes[n-2]
	return TransposeAllAxes(x, axes...)
}

// leading returns 0..n-1.
func leading(n int) []int {
	axes := make([]int, n)
	for i := range axes {
		axes[i] = i
	}
	return axes
}
