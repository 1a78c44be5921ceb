package model

import (
	"github.com/gomlx/gomlx/core/tensors"

	. "github.com/gomlx/gomlx/core/graph"
)

// rotation turns the halves of queries and keys [N, heads, E] by the angles of their
// positions.
type rotation struct {
	positions *Node // int32 [N]
	cos, sin  *Node // [length, E/2]
	// The same for the CPU backend, which slices and pads element by element: angles
	// for both halves, and the matrix that maps (a, b) to (-b, a).
	cosBoth, sinBoth *Node // [length, E]
	quarter          *Node // [E, E]
}

// newRotation makes tables for positions below length.
func newRotation(g *Graph, cfg Config, positions *Node, length int) rotation {
	half := cfg.HeadDim / 2
	cos, sin := cfg.Rotations(length)
	table := func(data []float32) *Node {
		return ConstTensor(g, tensors.FromFlatDataAndDimensions(data, length, len(data)/length))
	}
	return rotation{
		positions: positions, cos: table(cos), sin: table(sin),
		cosBoth: table(doubled(cos, half)), sinBoth: table(doubled(sin, half)), quarter: ConstTensor(g, quarterTurn(cfg.HeadDim)),
	}
}

// quarterTurn is the matrix that maps a row (a, b) of two halves to (-b, a).
func quarterTurn(dim int) *tensors.Tensor {
	m := make([]float32, dim*dim)
	for i := range dim / 2 {
		m[(i+dim/2)*dim+i] = -1
		m[i*dim+i+dim/2] = 1
	}
	return tensors.FromFlatDataAndDimensions(m, dim, dim)
}

// doubled repeats each row.
func doubled(data []float32, row int) []float32 {
	out := make([]float32, 0, 2*len(data))
	for at := 0; at < len(data); at += row {
		out = append(append(out, data[at:at+row]...), data[at:at+row]...)
	}
	return out
}

// angles returns the cosines and sines of each token for a number of heads:
// [N, heads, E/2] each.
func (r rotation) angles(heads int) (cos, sin *Node) {
	return r.perHead(heads, r.cos), r.perHead(heads, r.sin)
}

// perHead is the row of a table for each token and head: [N, heads, width]. A lookup
// for every head costs less than broadcasting over a middle axis in each layer,
// forward and backward.
func (r rotation) perHead(heads int, table *Node) *Node {
	at := BroadcastToDims(InsertAxes(r.positions, -1), r.positions.Shape().Dimensions[0], heads)
	return Gather(table, InsertAxes(at, -1))
}

// apply rotates x [N, heads, E]. Element i of the first half pairs with element i of
// the second, as in Hugging Face's rotate_half. The product and the slices give the same
// bits, since each sum of the product is one element and zeros.
func (r rotation) apply(x *Node) *Node {
	if onHost(x.Graph()) {
		return r.byProduct(x)
	}
	return r.bySlices(x)
}

func (r rotation) byProduct(x *Node) *Node {
	heads := x.Shape().Dimensions[1]
	turned := DotGeneral(x, []int{2}, nil, r.quarter, []int{0}, nil) // [N, heads, E]
	return Add(Mul(x, r.perHead(heads, r.cosBoth)), Mul(turned, r.perHead(heads, r.sinBoth)))
}

func (r rotation) bySlices(x *Node) *Node {
	cos, sin := r.angles(x.Shape().Dimensions[1])
	half := x.Shape().Dimensions[2] / 2
	a := SliceAxis(x, 2, AxisRange(0, half))
	b := SliceAxis(x, 2, AxisRangeToEnd(half))
	return Concatenate([]*Node{
		Sub(Mul(a, cos), Mul(b, sin)),
		Add(Mul(b, cos), Mul(a, sin)),
	}, 2)
}
