package qwen3

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
	table := func(data []float32) *Node {
		return ConstTensor(g, tensors.FromFlatDataAndDimensions(data, length, half))
	}
	return rope{positions: positions, cos: table(cos), sin: table(sin)}
}

// angles returns the cosines and sines of each token for a number of heads:
// [N, heads, E/2] each. Looking every head's up costs less than broadcasting
// over a middle axis in each layer, forward and back.
func (r rope) angles(heads int) (cos, sin *Node) {
	at := BroadcastToDims(InsertAxes(r.positions, -1), r.positions.Shape().Dimensions[0], heads)
	at = InsertAxes(at, -1)
	return Gather(r.cos, at), Gather(r.sin, at)
}

// apply rotates x [N, heads, E]; element i of the first half pairs with element
// i of the second, as in Hugging Face's rotate_half.
func (r rope) apply(x *Node) *Node {
	cos, sin := r.angles(x.Shape().Dimensions[1])
	half := x.Shape().Dimensions[2] / 2
	a := SliceAxis(x, 2, AxisRange(0, half))
	b := SliceAxis(x, 2, AxisRangeToEnd(half))
	return Concatenate([]*Node{
		Sub(Mul(a, cos), Mul(b, sin)),
		Add(Mul(b, cos), Mul(a, sin)),
	}, 2)
}
