package graphs

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
)

// product multiplies x [..., N, in] and y [..., out, in] over their last axis, for
// each index of the leading axes: [..., N, out]. It multiplies in x's type, adds in
// float32 and returns x's type. y's gradient has y's type, so that a float32 weight
// gets a float32 gradient from half-precision factors.
//
// The gradient of y, v^T x, contracts the first axis of both factors. For that the CPU
// backend copies both into its own layout, element by element, which costs more than
// the product itself. Transposing only the smaller one gives the same sums.
func product(x, y *Node) *Node { return productAs(x.DType(), x, y) }

// productAs is product with another type of result.
func productAs(result dtypes.DType, x, y *Node) *Node {
	factor := x.DType()
	yType := y.DType()
	y = IdentityWithCustomGradient(y, func(_, grad *Node) *Node { return secondGradient(grad, factor, yType) })
	if yType != factor {
		y = ConvertDType(y, factor)
	}
	// In the backward pass GoMLX would multiply half precision in float32, and copy float32.
	x = IdentityWithCustomGradient(x, func(_, grad *Node) *Node { return firstGradient(grad, factor) })
	outer := leading(x.Rank() - 2)
	return contract(result, x, x.Rank()-1, y, y.Rank()-1, outer)
}

// contract multiplies a and b over one axis of each, for each index of the outer axes.
func contract(result dtypes.DType, a *Node, axisA int, b *Node, axisB int, outer []int) *Node {
	dot := Dot(a, b)
	if result != a.DType() {
		dot = dot.WithOutputDType(result)
	}
	return dot.General([]int{axisA}, outer, []int{axisB}, outer)
}

// factors finds the two factors in the gradient of a product. GoMLX builds it as a
// product with changes of type and layout around it. Without such a product, ok
// is false, and the unchanged gradient is correct but slower.
func factors(grad *Node, as dtypes.DType) (v, other *Node, ok bool) {
	dot := grad
	for dot.Type() == NodeTypeTranspose || dot.Type() == NodeTypeConvertDType {
		dot = dot.Inputs()[0]
	}
	if dot.Type() != NodeTypeDotGeneral {
		return nil, nil, false
	}
	return narrow(dot.Inputs()[0], as), narrow(dot.Inputs()[1], as), true
}

// narrow converts x to a type. If x was widened from that type, it returns the node
// before the widening.
func narrow(x *Node, as dtypes.DType) *Node {
	switch {
	case x.DType() == as:
		return x
	case as.IsHalfPrecision() && x.Type() == NodeTypeConvertDType && x.Inputs()[0].DType() == as:
		return x.Inputs()[0]
	}
	return ConvertDType(x, as)
}

// firstGradient is v y for v [..., N, out] and y [..., out, in], in the type of the
// factors.
func firstGradient(grad *Node, factor dtypes.DType) *Node {
	v, y, ok := factors(grad, factor)
	if !ok {
		return grad
	}
	rank := v.Rank()
	return contract(factor, v, rank-1, y, rank-2, leading(rank-2))
}

// secondGradient is v^T x for v [..., N, out] and x [..., N, in], computed by
// transposing the smaller of the two: [..., out, in].
func secondGradient(grad *Node, factor, result dtypes.DType) *Node {
	v, x, ok := factors(grad, factor)
	if !ok {
		return grad
	}
	rank := v.Rank()
	n, out, in := v.Shape().Dimensions[rank-2], v.Shape().Dimensions[rank-1], x.Shape().Dimensions[rank-1]
	if want := grad.Shape().Dimensions; want[rank-2] != out || want[rank-1] != in {
		return grad
	}
	if n*out <= n*in+out*in {
		return contract(result, swapLast(v), rank-1, x, rank-2, leading(rank-2))
	}
	return swapLast(contract(result, swapLast(x), rank-1, v, rank-2, leading(rank-2)))
}

// leading returns 0..n-1.
func leading(n int) []int {
	axes := make([]int, n)
	for i := range axes {
		axes[i] = i
	}
	return axes
}

// pageRow is a distance in numbers. The CPU backend transposes a matrix in blocks, row
// after row of its input. Rows of the result that are a multiple of pageRow apart fall
// into the same few lines of the first-level cache and evict one another; rows that are
// pageRow/2 apart do not.
const pageRow = 512

// onHost reports whether a graph runs on the CPU backend. Some functions of this package
// choose their operations by its costs. The results are the same.
func onHost(g *Graph) bool { return g.Backend().String() == "go" }

// swapLast exchanges the last two axes.
//
// The CPU backend transposes several matrices element by element. With their rows side
// by side they are one matrix, which it transposes in blocks.
func swapLast(x *Node) *Node {
	rank := x.Rank()
	axes := leading(rank)
	axes[rank-2], axes[rank-1] = axes[rank-1], axes[rank-2]
	if !onHost(x.Graph()) {
		return TransposeAllAxes(x, axes...)
	}
	dims := x.Shape().Clone().Dimensions
	n, m := dims[rank-2], dims[rank-1]
	matrices := x.Shape().Size() / (n * m)
	if matrices > 1 {
		x = TransposeAllAxes(Reshape(x, matrices, n, m), 1, 0, 2) // [n, matrices, m]
	}
	x = swapMatrix(Reshape(x, n, matrices*m)) // [matrices*m, n]
	dims[rank-2], dims[rank-1] = m, n
	return Reshape(x, dims...)
}

// swapMatrix is the transpose of x [n, m], in parts so that the rows of no result are a
// multiple of pageRow long: [m, n].
func swapMatrix(x *Node) *Node {
	const part = pageRow / 2
	n, m := x.Shape().Dimensions[0], x.Shape().Dimensions[1]
	if n%pageRow != 0 {
		return Transpose(x, 0, 1)
	}
	parts := n / part
	x = TransposeAllAxes(Reshape(x, parts, part, m), 1, 0, 2) // [part, parts, m]
	x = Transpose(Reshape(x, part, parts*m), 0, 1)            // [parts*m, part]
	x = TransposeAllAxes(Reshape(x, parts, m, part), 1, 0, 2) // [m, parts, part]
	return Reshape(x, m, n)
}
