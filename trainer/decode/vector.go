//go:build goexperiment.simd && amd64

package decode

import (
	"math"
	"simd/archsimd"
	"unsafe"
)

// lanes is the number of float32 in a vector.
const lanes = 16

type vector = archsimd.Float32x16

// load reads a vector at element i of a slice. The caller knows that it is there.
func load(s []float32, i int) vector {
	return archsimd.LoadFloat32x16Array((*[lanes]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

// store writes a vector at element i.
func store(v vector, s []float32, i int) {
	v.StoreArray((*[lanes]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

func splat(x float32) vector { return archsimd.BroadcastFloat32x16(x) }

// total adds the lanes: each half to the other, twice, then neighbors, then the rest.
func total(v vector) float32 {
	eight := v.GetLo().Add(v.GetHi())
	four := eight.GetLo().Add(eight.GetHi())
	two := four.ConcatAddPairs(four)
	return two.GetElem(0) + two.GetElem(1)
}

// largest is the maximum of the lanes.
func largest(v vector) float32 {
	eight := v.GetLo().Max(v.GetHi())
	four := eight.GetLo().Max(eight.GetHi())
	var e [4]float32
	four.StoreArray(&e)
	return max(e[0], e[1], e[2], e[3])
}

// sum adds numbers as the backend does: in four vectors, as long as there are four, then
// in one, then the rest one by one.
func sum(x []float32) float32 {
	var a, b, c, d vector
	i := 0
	for ; i+4*lanes <= len(x); i += 4 * lanes {
		a, b = a.Add(load(x, i)), b.Add(load(x, i+lanes))
		c, d = c.Add(load(x, i+2*lanes)), d.Add(load(x, i+3*lanes))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes <= len(x); i += lanes {
		a = a.Add(load(x, i))
	}
	t := total(a)
	for ; i < len(x); i++ {
		t += x[i]
	}
	return t
}

// sumOfSquares adds squares in the same order.
func sumOfSquares(x []float32) float32 {
	var a, b, c, d vector
	i := 0
	for ; i+4*lanes <= len(x); i += 4 * lanes {
		p, q, r, s := load(x, i), load(x, i+lanes), load(x, i+2*lanes), load(x, i+3*lanes)
		a, b, c, d = a.Add(p.Mul(p)), b.Add(q.Mul(q)), c.Add(r.Mul(r)), d.Add(s.Mul(s))
	}
	a = a.Add(c).Add(b.Add(d))
	for ; i+lanes <= len(x); i += lanes {
		p := load(x, i)
		a = a.Add(p.Mul(p))
	}
	return total(a) // a norm's width is a multiple of lanes
}

// Constants of the exponential, the same in all of its forms.
const (
	expLimit = 88.02969187150841
	log2E    = 1.44269504088896341
	ln2High  = 0.693359375
	ln2Low   = -2.12194440e-4
	exp7     = 1.9875691500e-4
	exp6     = 1.3981999507e-3
	exp5     = 8.3334519073e-3
	exp4     = 4.1665795894e-2
	exp3     = 1.6666665459e-1
	exp2     = 5.0000001201e-1
)

// expRounded is the exponential of attention: it rounds to the nearest power of two.
func expRounded(x vector) vector {
	x = x.Max(splat(-expLimit)).Min(splat(expLimit))
	return expFrom(x, x.MulAdd(splat(log2E), splat(0.5)).RoundScaled(0))
}

// expFloor is the exponential of single elements: it takes the power of two below.
func expFloor(x vector) vector {
	x = x.Max(splat(-expLimit)).Min(splat(expLimit))
	return expFrom(x, x.MulAdd(splat(log2E), splat(0.5)).FloorScaled(0))
}

// expFrom is e^x where z is the power of two to begin with.
func expFrom(x, z vector) vector {
	g := x.Sub(z.Mul(splat(ln2High))).Sub(z.Mul(splat(ln2Low)))
	p := splat(exp7).MulAdd(g, splat(exp6))
	p = p.MulAdd(g, splat(exp5))
	p = p.MulAdd(g, splat(exp4))
	p = p.MulAdd(g, splat(exp3))
	p = p.MulAdd(g, splat(exp2))
	p = p.Mul(g).Mul(g).Add(g).Add(splat(1))
	return power(z).Mul(p)
}

// power is 2^z for whole numbers.
func power(z vector) vector {
	return z.ConvertToInt32().ToBits().Add(archsimd.BroadcastUint32x16(127)).ShiftAllLeft(23).BitsToFloat32()
}

// expSingle is the exponential of the keys at the end of a context, fewer than a vector.
// It finds the power of two in double precision and rounds after each product.
func expSingle(x vector) vector {
	z := floorDouble(x)
	g := x.Sub(z.Mul(splat(ln2High))).Sub(z.Mul(splat(ln2Low)))
	p := splat(exp7).Mul(g).Add(splat(exp6))
	p = p.Mul(g).Add(splat(exp5))
	p = p.Mul(g).Add(splat(exp4))
	p = p.Mul(g).Add(splat(exp3))
	p = p.Mul(g).Add(splat(exp2))
	p = p.Mul(g.Mul(g)).Add(g).Add(splat(1))
	return power(z).Mul(p).Masked(x.GreaterEqual(splat(-expLimit)))
}

// floorDouble is the floor of x/ln(2)+0.5, which is computed in double precision.
func floorDouble(x vector) vector {
	scale, half := archsimd.BroadcastFloat64x8(log2E), archsimd.BroadcastFloat64x8(0.5)
	part := func(v archsimd.Float32x8) archsimd.Float32x8 {
		return v.ConvertToFloat64().Mul(scale).Add(half).FloorScaled(0).ConvertToFloat32()
	}
	var z vector
	return z.SetLo(part(x.GetLo())).SetHi(part(x.GetHi()))
}

// silu is gate * sigmoid(gate) * up.
func silu(gate, up vector) vector {
	one := splat(1)
	s := one.Div(one.Add(expFloor(gate.Neg())))
	return gate.Mul(s).Mul(up)
}

// negativeInfinity begins a maximum.
var negativeInfinity = float32(math.Inf(-1))
