//go:build goexperiment.simd && amd64

package decode

import (
	"math/bits"

	"temper/trainer/lanes"
)

// arithmetic256 is that of kernels for AVX2.
var arithmetic256 = arithmetic{
	tile: tile256, turnFloat32: turn256Float32, turnBFloat16: turn256BFloat16,
	sum: sum256, sumOfSquares: sumOfSquares256, scale: scale256, add: add256, swiglu: swiglu256,
	score: (*Cache).score256, mix: (*Cache).mix256, soften: soften256, countUpTo: countUpTo256,
}

// sum256 adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum256(x []float32) float32 {
	var a, b, c, d lanes.Half
	i := 0
	for ; i+4*lanes.HalfWidth <= len(x); i += 4 * lanes.HalfWidth {
		a, b = a.Add(lanes.LoadHalf(x, i)), b.Add(lanes.LoadHalf(x, i+lanes.HalfWidth))
		c, d = c.Add(lanes.LoadHalf(x, i+2*lanes.HalfWidth)), d.Add(lanes.LoadHalf(x, i+3*lanes.HalfWidth))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes.HalfWidth <= len(x); i += lanes.HalfWidth {
		a = a.Add(lanes.LoadHalf(x, i))
	}
	t := totalOfSum(a)
	for ; i < len(x); i++ {
		t += x[i]
	}
	return t
}

// sumOfSquares256 adds squares in the same order.
func sumOfSquares256(x []float32) float32 {
	var a, b, c, d lanes.Half
	i := 0
	for ; i+4*lanes.HalfWidth <= len(x); i += 4 * lanes.HalfWidth {
		p, q := lanes.LoadHalf(x, i), lanes.LoadHalf(x, i+lanes.HalfWidth)
		r, s := lanes.LoadHalf(x, i+2*lanes.HalfWidth), lanes.LoadHalf(x, i+3*lanes.HalfWidth)
		a, b, c, d = a.Add(p.Mul(p)), b.Add(q.Mul(q)), c.Add(r.Mul(r)), d.Add(s.Mul(s))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes.HalfWidth <= len(x); i += lanes.HalfWidth {
		p := lanes.LoadHalf(x, i)
		a = a.Add(p.Mul(p))
	}
	return totalOfSum(a)
}

// totalOfSum adds the lanes as the backend's kernel for sums does, whose last step takes
// lanes two apart. That of its attention takes neighbors: see lanes.TotalHalf.
func totalOfSum(v lanes.Half) float32 {
	four := v.GetLo().Add(v.GetHi())
	var e [4]float32
	four.StoreArray(&e)
	return (e[0] + e[2]) + (e[1] + e[3])
}

func scale256(out, x, weight []float32, by float32) {
	factor := lanes.SplatHalf(by)
	for i := 0; i < len(x); i += lanes.HalfWidth {
		lanes.StoreHalf(lanes.LoadHalf(x, i).Mul(factor).Mul(lanes.LoadHalf(weight, i)), out, i)
	}
}

func add256(x, y []float32) {
	for i := 0; i < len(x); i += lanes.HalfWidth {
		lanes.StoreHalf(lanes.LoadHalf(x, i).Add(lanes.LoadHalf(y, i)), x, i)
	}
}

func swiglu256(out, gate, up []float32) {
	one, zero := lanes.SplatHalf(1), lanes.SplatHalf(0)
	for i := 0; i < len(out); i += lanes.HalfWidth {
		g := lanes.LoadHalf(gate, i)
		s := one.Div(one.Add(lanes.ExpFloor8(zero.Sub(g))))
		lanes.StoreHalf(g.Mul(s).Mul(lanes.LoadHalf(up, i)), out, i)
	}
}

func soften256(scores, weights []float32, scale float32) {
	factor, top := lanes.SplatHalf(scale), lanes.SplatHalf(negativeInfinity)
	for i := 0; i < len(scores); i += lanes.HalfWidth {
		x := lanes.LoadHalf(scores, i).Mul(factor)
		lanes.StoreHalf(x, scores, i)
		top = top.Max(x)
	}
	most := lanes.SplatHalf(lanes.LargestHalf(top))
	for i := 0; i < len(scores); i += lanes.HalfWidth {
		z := lanes.LoadHalf(scores, i).Sub(most)
		lanes.StoreHalf(z, scores, i)
		lanes.StoreHalf(lanes.ExpFloor8(z), weights, i)
	}
}

func countUpTo256(x []float32, limit float32) int32 {
	most, n := lanes.SplatHalf(limit), 0
	for i := 0; i < len(x); i += lanes.HalfWidth {
		n += bits.OnesCount8(lanes.LoadHalf(x, i).LessEqual(most).ToBits())
	}
	return int32(n)
}
