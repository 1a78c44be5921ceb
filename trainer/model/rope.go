package model

import (
	"math"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/gomlx/gomlx/core/tensors"
)

// rope rotates the halves of queries and keys [N, heads, E] by angles that
// depend on the position.
type rope struct {
	positions *Node // int32 [N]
	cos, sin  *Node // [length, E/2]
	// The same for the CPU backend, which slices and pads element by element: angles
	// for both halves, and the matrix that maps (a, b) to (-b, a).
	cosBoth, sinBoth *Node // [length, E]
	quarter          *Node // [E, E]
}

// newRope makes tables for positions below length, computed on the host in
// double precision.
func newRope(g *Graph, cfg Config, positions *Node, length int) rope {
	half := cfg.HeadDim / 2
	cos, sin := make([]float32, length*half), make([]float32, length*half)
	for p := range length {
		for i := range half {
			angle := float64(p) * math.Pow(cfg.RopeTheta, -float64(2*i)/float64(cfg.HeadDim))
			cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	turn := make([]float32, 4*half*half)
	for i := range half {
		turn[(half+i)*2*half+i], turn[i*2*half+half+i] = -1, 1
	}
	table := func(data []float32, rows int) *Node {
		return ConstTensor(g, tensors.FromFlatDataAndDimensions(data, rows, len(data)/rows))
	}
	return rope{
		positions: positions, cos: table(cos, length), sin: table(sin, length),
		cosBoth: table(doubled(cos, half), length), sinBoth: table(doubled(sin, half), length), quarter: table(turn, 2*half),
	}
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
func (r rope) angles(heads int) (cos, sin *Node) {
	return r.perHead(heads, r.cos), r.perHead(heads, r.sin)
}

// perHead is the row of a table for each token and head: [N, heads, width]. A lookup
// for every head costs less than broadcasting over a middle axis in each layer,
// forward and backward.
func (r rope) perHead(heads int, table *Node) *Node {
	at := BroadcastToDims(InsertAxes(r.positions, -1), r.positions.Shape().Dimensions[0], heads)
	return Gather(table, InsertAxes(at, -1))
}

// apply rotates x [N, heads, E]. Element i of the first half pairs with element i of
// the second, as in Hugging Face's rotate_half. The product and the slices give the same
// bits, since each sum of the product is one element and zeros.
func (r rope) apply(x *Node) *Node {
	if onHost(x.Graph()) {
		return r.byProduct(x)
	}
	return r.bySlices(x)
}

func (r rope) byProduct(x *Node) *Node {
	heads := x.Shape().Dimensions[1]
	turned := DotGeneral(x, []int{2}, nil, r.quarter, []int{0}, nil) // [N, heads, E]
	return Add(Mul(x, r.perHead(heads, r.cosBoth)), Mul(turned, r.perHead(heads, r.sinBoth)))
}

func (r rope) bySlices(x *Node) *Node {
	cos, sin := r.angles(x.Shape().Dimensions[1])
	half := x.Shape().Dimensions[2] / 2
	a := SliceAxis(x, 2, AxisRange(0, half))
	b := SliceAxis(x, 2, AxisRangeToEnd(half))
	return Concatenate([]*Node{
		Sub(Mul(a, cos), Mul(b, sin)),
		Add(Mul(b, cos), Mul(a, sin)),
	}, 2)
}
