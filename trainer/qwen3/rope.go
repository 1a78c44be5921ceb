package qwen3

import (
	"math"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/gomlx/gomlx/core/tensors"
)

// rope rotates query and key halves by position-dependent angles.
type rope struct {
	cos, sin *Node // [..., 1, E/2], broadcast over heads
}

// newRope looks the angles of positions [...] up in tables of the given length
// that are computed on the host in double precision.
func newRope(g *Graph, cfg Config, positions *Node, length int) rope {
	half := cfg.HeadDim / 2
	cos, sin := make([]float32, length*half), make([]float32, length*half)
	for p := range length {
		for i := range half {
			angle := float64(p) * math.Pow(cfg.RopeTheta, -float64(2*i)/float64(cfg.HeadDim))
			cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	lookup := func(table []float32) *Node {
		t := ConstTensor(g, tensors.FromFlatDataAndDimensions(table, length, half))
		return InsertAxes(Gather(t, InsertAxes(positions, -1)), -2)
	}
	return rope{cos: lookup(cos), sin: lookup(sin)}
}

// apply rotates x [..., heads, E]; element i of the first half pairs with
// element i of the second, as in Hugging Face's rotate_half.
func (r rope) apply(x *Node) *Node {
	half := x.Shape().Dimensions[x.Rank()-1] / 2
	a := SliceAxis(x, -1, AxisRange(0, half))
	b := SliceAxis(x, -1, AxisRangeToEnd(half))
	return Concatenate([]*Node{
		Sub(Mul(a, r.cos), Mul(b, r.sin)),
		Add(Mul(b, r.cos), Mul(a, r.sin)),
	}, -1)
}
