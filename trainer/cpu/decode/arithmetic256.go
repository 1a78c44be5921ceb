//go:build goexperiment.simd && amd64

package decode

import (
	"math/bits"

	"temper/trainer/cpu/vector"
)

// arithmetic256 adds as the kernels for AVX2 do.
var arithmetic256 = arithmetic{
	tile: tile256, turnFloat32: turn256Float32, turnBFloat16: turn256BFloat16,
	sum: sum256, sumOfSquares: sumOfSquares256, scale: scale256, add: add256, swiglu: swiglu256,
	score: (*Cache).score256, mix: (*Cache).mix256, soften: soften256, countUpTo: countUpTo256,
}

// sum256 adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum256(x []float32) float32 {
	var a, b, c, d vector.Half
	i := 0
	for ; i+4*vector.HalfWidth <= len(x); i += 4 * vector.HalfWidth {
		a, b = a.Add(vector.LoadHalf(x, i)), b.Add(vector.LoadHalf(x, i+vector.HalfWidth))
		c, d = c.Add(vector.LoadHalf(x, i+2*vector.HalfWidth)), d.Add(vector.LoadHalf(x, i+3*vector.HalfWidth))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+vector.HalfWidth <= len(x); i += vector.HalfWidth {
		a = a.Add(vector.LoadHalf(x, i))
	}
	t := totalOfSum(a)
	for ; i < len(x); i++ {
		t += x[i]
	}
	return t
}

// sumOfSquares256 adds squares in the same order.
func sumOfSquares256(x []float32) float32 {
	var a, b, c, d vector.Half
	i := 0
	for ; i+4*vector.HalfWidth <= len(x); i += 4 * vector.HalfWidth {
		p, q := vector.LoadHalf(x, i), vector.LoadHalf(x, i+vector.HalfWidth)
		r, s := vector.LoadHalf(x, i+2*vector.HalfWidth), vector.LoadHalf(x, i+3*vector.HalfWidth)
		a, b, c, d = a.Add(p.Mul(p)), b.Add(q.Mul(q)), c.Add(r.Mul(r)), d.Add(s.Mul(s))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+vector.HalfWidth <= len(x); i += vector.HalfWidth {
		p := vector.LoadHalf(x, i)
		a = a.Add(p.Mul(p))
	}
	return totalOfSum(a)
}

// totalOfSum adds the lanes as the backend's kernel for sums does, whose last step takes
// lanes two apart. That of its attention takes neighbors: see vector.TotalHalf.
func totalOfSum(v vector.Half) float32 {
	four := v.GetLo().Add(v.GetHi())
	var e [4]float32
	four.StoreArray(&e)
	return (e[0] + e[2]) + (e[1] + e[3])
}

func scale256(out, x, weight []float32, by float32) {
	factor := vector.SplatHalf(by)
	for i := 0; i < len(x); i += vector.HalfWidth {
		vector.StoreHalf(vector.LoadHalf(x, i).Mul(factor).Mul(vector.LoadHalf(weight, i)), out, i)
	}
}

func add256(x, y []float32) {
	for i := 0; i < len(x); i += vector.HalfWidth {
		vector.StoreHalf(vector.LoadHalf(x, i).Add(vector.LoadHalf(y, i)), x, i)
	}
}

func swiglu256(out, gate, up []float32) {
	one, zero := vector.SplatHalf(1), vector.SplatHalf(0)
	for i := 0; i < len(out); i += vector.HalfWidth {
		g := vector.LoadHalf(gate, i)
		s := one.Div(one.Add(vector.ExpFloor8(zero.Sub(g))))
		vector.StoreHalf(g.Mul(s).Mul(vector.LoadHalf(up, i)), out, i)
	}
}

func soften256(scores, weights []float32, scale float32) {
	factor, top := vector.SplatHalf(scale), vector.SplatHalf(negativeInfinity)
	for i := 0; i < len(scores); i += vector.HalfWidth {
		x := vector.LoadHalf(scores, i).Mul(factor)
		vector.StoreHalf(x, scores, i)
		top = top.Max(x)
	}
	most := vector.SplatHalf(vector.LargestHalf(top))
	for i := 0; i < len(scores); i += vector.HalfWidth {
		z := vector.LoadHalf(scores, i).Sub(most)
		vector.StoreHalf(z, scores, i)
		vector.StoreHalf(vector.ExpFloor8(z), weights, i)
	}
}

func countUpTo256(x []float32, limit float32) int32 {
	most, n := vector.SplatHalf(limit), 0
	for i := 0; i < len(x); i += vector.HalfWidth {
		n += bits.OnesCount8(vector.LoadHalf(x, i).LessEqual(most).ToBits())
	}
	return int32(n)
}
