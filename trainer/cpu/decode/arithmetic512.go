//go:build goexperiment.simd && amd64

package decode

import (
	"math/bits"

	"temper/trainer/cpu/vector"
)

// arithmetic512 adds as the kernels for AVX-512 do.
var arithmetic512 = arithmetic{
	tile: tile512, turnFloat32: turnFloat32, turnBFloat16: turnBFloat16,
	sum: sum512, sumOfSquares: sumOfSquares512, scale: scale512, add: add512, swiglu: swiglu512,
	score: (*Cache).score512, mix: (*Cache).mix512, soften: soften512, countUpTo: countUpTo512,
}

// sum512 adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum512(x []float32) float32 {
	var a, b, c, d vector.Vector
	i := 0
	for ; i+4*vector.Width <= len(x); i += 4 * vector.Width {
		a, b = a.Add(vector.Load(x, i)), b.Add(vector.Load(x, i+vector.Width))
		c, d = c.Add(vector.Load(x, i+2*vector.Width)), d.Add(vector.Load(x, i+3*vector.Width))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+vector.Width <= len(x); i += vector.Width {
		a = a.Add(vector.Load(x, i))
	}
	t := vector.Total(a)
	for ; i < len(x); i++ {
		t += x[i]
	}
	return t
}

// sumOfSquares512 adds squares in the same order.
func sumOfSquares512(x []float32) float32 {
	var a, b, c, d vector.Vector
	i := 0
	for ; i+4*vector.Width <= len(x); i += 4 * vector.Width {
		p, q, r, s := vector.Load(x, i), vector.Load(x, i+vector.Width), vector.Load(x, i+2*vector.Width), vector.Load(x, i+3*vector.Width)
		a, b, c, d = a.Add(p.Mul(p)), b.Add(q.Mul(q)), c.Add(r.Mul(r)), d.Add(s.Mul(s))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+vector.Width <= len(x); i += vector.Width {
		p := vector.Load(x, i)
		a = a.Add(p.Mul(p))
	}
	return vector.Total(a)
}

func scale512(out, x, weight []float32, by float32) {
	factor := vector.Splat(by)
	for i := 0; i < len(x); i += vector.Width {
		vector.Store(vector.Load(x, i).Mul(factor).Mul(vector.Load(weight, i)), out, i)
	}
}

func add512(x, y []float32) {
	for i := 0; i < len(x); i += vector.Width {
		vector.Store(vector.Load(x, i).Add(vector.Load(y, i)), x, i)
	}
}

func swiglu512(out, gate, up []float32) {
	one := vector.Splat(1)
	for i := 0; i < len(out); i += vector.Width {
		g := vector.Load(gate, i)
		s := one.Div(one.Add(vector.ExpFloor(g.Neg())))
		vector.Store(g.Mul(s).Mul(vector.Load(up, i)), out, i)
	}
}

func soften512(scores, weights []float32, scale float32) {
	factor, top := vector.Splat(scale), vector.Splat(negativeInfinity)
	for i := 0; i < len(scores); i += vector.Width {
		x := vector.Load(scores, i).Mul(factor)
		vector.Store(x, scores, i)
		top = top.Max(x)
	}
	most := vector.Splat(vector.Largest(top))
	for i := 0; i < len(scores); i += vector.Width {
		z := vector.Load(scores, i).Sub(most)
		vector.Store(z, scores, i)
		vector.Store(vector.ExpFloor(z), weights, i)
	}
}

func countUpTo512(x []float32, limit float32) int32 {
	most, n := vector.Splat(limit), 0
	for i := 0; i < len(x); i += vector.Width {
		n += bits.OnesCount16(vector.Load(x, i).LessEqual(most).ToBits())
	}
	return int32(n)
}
