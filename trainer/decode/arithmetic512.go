//go:build goexperiment.simd && amd64

package decode

import (
	"math/bits"

	"temper/trainer/lanes"
)

// arithmetic512 is that of kernels for AVX-512.
var arithmetic512 = arithmetic{
	tile: tile512, turnFloat32: turnFloat32, turnBFloat16: turnBFloat16,
	sum: sum512, sumOfSquares: sumOfSquares512, scale: scale512, add: add512, swiglu: swiglu512,
	score: (*Cache).score512, mix: (*Cache).mix512, soften: soften512, countUpTo: countUpTo512,
}

// sum512 adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum512(x []float32) float32 {
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

// sumOfSquares512 adds squares in the same order.
func sumOfSquares512(x []float32) float32 {
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
	return lanes.Total(a)
}

func scale512(out, x, weight []float32, by float32) {
	factor := lanes.Splat(by)
	for i := 0; i < len(x); i += lanes.Width {
		lanes.Store(lanes.Load(x, i).Mul(factor).Mul(lanes.Load(weight, i)), out, i)
	}
}

func add512(x, y []float32) {
	for i := 0; i < len(x); i += lanes.Width {
		lanes.Store(lanes.Load(x, i).Add(lanes.Load(y, i)), x, i)
	}
}

func swiglu512(out, gate, up []float32) {
	one := lanes.Splat(1)
	for i := 0; i < len(out); i += lanes.Width {
		g := lanes.Load(gate, i)
		s := one.Div(one.Add(lanes.ExpFloor(g.Neg())))
		lanes.Store(g.Mul(s).Mul(lanes.Load(up, i)), out, i)
	}
}

func soften512(scores, weights []float32, scale float32) {
	factor, top := lanes.Splat(scale), lanes.Splat(negativeInfinity)
	for i := 0; i < len(scores); i += lanes.Width {
		x := lanes.Load(scores, i).Mul(factor)
		lanes.Store(x, scores, i)
		top = top.Max(x)
	}
	most := lanes.Splat(lanes.Largest(top))
	for i := 0; i < len(scores); i += lanes.Width {
		z := lanes.Load(scores, i).Sub(most)
		lanes.Store(z, scores, i)
		lanes.Store(lanes.ExpFloor(z), weights, i)
	}
}

func countUpTo512(x []float32, limit float32) int32 {
	most, n := lanes.Splat(limit), 0
	for i := 0; i < len(x); i += lanes.Width {
		n += bits.OnesCount16(lanes.Load(x, i).LessEqual(most).ToBits())
	}
	return int32(n)
}
