package qwen3

import (
	. "github.com/gomlx/gomlx/core/graph"
)

// The CPU backend transposes a matrix in blocks, row after row of its input. Rows
// of a result that are a multiple of pageRow numbers apart fall into the same few
// lines of the first cache and drive one another out; at pageRow/2 they do not.
const pageRow = 512

// onHost says whether a graph runs on the CPU backend, whose costs decide how
// some functions of this package are put together. The results are the same.
func onHost(g *Graph) bool { return g.Backend().String() == "go" }

// swapLast exchanges the last two axes.
//
// Of several matrices the CPU backend moves element by element; rows of all of
// them side by side are one matrix that it transposes in blocks.
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

// swapMatrix is the transpose of x [n, m], cut so that no row of a result is a
// multiple of pageRow: [m, n].
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
