package qwen3

import (
	. "github.com/gomlx/gomlx/core/graph"
)

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
