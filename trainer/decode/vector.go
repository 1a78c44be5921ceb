//go:build goexperiment.simd && amd64

package decode

import (
	"math"

	"temper/trainer/lanes"
)

// sum adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum(x []float32) float32 {
	var a, b, c, d lanes.Vector
	i := 0
	for ; i+4*lanes.Width <= len(x); i += 4 * lanes.Width {
		a, b = a.Add(lanes.Load(x, i)), b.Add(lanes.Load(x, i+lanes.Width))
		c, d = c.Add(lanes.Load(x, i+2*lanes.Width)), d.Add(lanes.Load(x, i+3*lanes.Width))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes.Width <= len(x); i += lanes.Width {
		a = a.Add(lanes.Load(x, i))
	}
	t := lanes.Total(a)
	for ; i < len(x); i++ {
		t += x[i]
	}
	return t
}

// sumOfSquares adds squares in the same order.
func sumOfSquares(x []float32) float32 {
	var a, b, c, d lanes.Vector
	i := 0
	for ; i+4*lanes.Width <= len(x); i += 4 * lanes.Width {
		p, q, r, s := lanes.Load(x, i), lanes.Load(x, i+lanes.Width), lanes.Load(x, i+2*lanes.Width), lanes.Load(x, i+3*lanes.Width)
		a, b, c, d = a.Add(p.Mul(p)), b.Add(q.Mul(q)), c.Add(r.Mul(r)), d.Add(s.Mul(s))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes.Width <= len(x); i += lanes.Width {
		p := lanes.Load(x, i)
		a = a.Add(p.Mul(p))
	}
	return lanes.Total(a) // a norm's width is a multiple of lanes
}

// silu is gate * sigmoid(gate) * up.
func silu(gate, up lanes.Vector) lanes.Vector {
	one := lanes.Splat(1)
	s := one.Div(one.Add(lanes.ExpFloor(gate.Neg())))
	return gate.Mul(s).Mul(up)
}

// negativeInfinity begins a maximum.
var negativeInfinity = float32(math.Inf(-1))
