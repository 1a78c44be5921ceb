//go:build goexperiment.simd && amd64

package vector

import (
	"simd/archsimd"
	"unsafe"
)

// Width is the number of float32 in a Vector.
const Width = 16

// Vector is sixteen float32.
type Vector = archsimd.Float32x16

// Load reads a vector at element i of a slice, which must have Width elements there.
func Load(s []float32, i int) Vector {
	return archsimd.LoadFloat32x16Array((*[Width]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

// Store writes a vector at element i.
func Store(v Vector, s []float32, i int) {
	v.StoreArray((*[Width]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

// Splat returns a vector of one number.
func Splat(x float32) Vector { return archsimd.BroadcastFloat32x16(x) }

// Total adds the lanes: each half to the other, twice, then neighbors, then the rest.
func Total(v Vector) float32 {
	eight := v.GetLo().Add(v.GetHi())
	four := eight.GetLo().Add(eight.GetHi())
	two := four.ConcatAddPairs(four)
	return two.GetElem(0) + two.GetElem(1)
}

// Largest returns the maximum of the lanes.
func Largest(v Vector) float32 {
	eight := v.GetLo().Max(v.GetHi())
	four := eight.GetLo().Max(eight.GetHi())
	var e [4]float32
	four.StoreArray(&e)
	return max(e[0], e[1], e[2], e[3])
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

// ExpRounded is the exponential of attention: it rounds to the nearest power of two.
func ExpRounded(x Vector) Vector {
	x = x.Max(Splat(-expLimit)).Min(Splat(expLimit))
	return expFrom(x, x.MulAdd(Splat(log2E), Splat(0.5)).RoundScaled(0))
}

// ExpFloor is the exponential of single elements: it rounds down to a power of two.
func ExpFloor(x Vector) Vector {
	x = x.Max(Splat(-expLimit)).Min(Splat(expLimit))
	return expFrom(x, x.MulAdd(Splat(log2E), Splat(0.5)).FloorScaled(0))
}

// expFrom returns e^x; z is the power of two to start from.
func expFrom(x, z Vector) Vector {
	g := x.Sub(z.Mul(Splat(ln2High))).Sub(z.Mul(Splat(ln2Low)))
	p := Splat(exp7).MulAdd(g, Splat(exp6))
	p = p.MulAdd(g, Splat(exp5))
	p = p.MulAdd(g, Splat(exp4))
	p = p.MulAdd(g, Splat(exp3))
	p = p.MulAdd(g, Splat(exp2))
	p = p.Mul(g).Mul(g).Add(g).Add(Splat(1))
	return power(z).Mul(p)
}

// power returns 2^z for whole numbers.
func power(z Vector) Vector {
	return z.ConvertToInt32().ToBits().Add(archsimd.BroadcastUint32x16(127)).ShiftAllLeft(23).BitsToFloat32()
}

// ExpSingle is the exponential of the keys at the end of a context, fewer than a vector. It
// finds the power of two in double precision and rounds after each product. NaN stays NaN, so
// that a diverged network is noticed.
func ExpSingle(x Vector) Vector {
	z := floorDouble(x)
	g := x.Sub(z.Mul(Splat(ln2High))).Sub(z.Mul(Splat(ln2Low)))
	p := Splat(exp7).Mul(g).Add(Splat(exp6))
	p = p.Mul(g).Add(Splat(exp5))
	p = p.Mul(g).Add(Splat(exp4))
	p = p.Mul(g).Add(Splat(exp3))
	p = p.Mul(g).Add(Splat(exp2))
	p = p.Mul(g.Mul(g)).Add(g).Add(Splat(1))
	return power(z).Mul(p).Masked(x.GreaterEqual(Splat(-expLimit)).Or(x.IsNaN()))
}

// floorDouble returns the floor of x/ln(2)+0.5, computed in double precision.
func floorDouble(x Vector) Vector {
	scale, half := archsimd.BroadcastFloat64x8(log2E), archsimd.BroadcastFloat64x8(0.5)
	part := func(v archsimd.Float32x8) archsimd.Float32x8 {
		return v.ConvertToFloat64().Mul(scale).Add(half).FloorScaled(0).ConvertToFloat32()
	}
	var z Vector
	return z.SetLo(part(x.GetLo())).SetHi(part(x.GetHi()))
}

// HalfWidth is the number of float32 in a Half.
const HalfWidth = 8

// Half is eight float32, the vector of AVX2.
type Half = archsimd.Float32x8

// LoadHalf reads a half vector at element i of a slice, which must have HalfWidth elements there.
func LoadHalf(s []float32, i int) Half {
	return archsimd.LoadFloat32x8Array((*[HalfWidth]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

// StoreHalf writes a half vector at element i.
func StoreHalf(v Half, s []float32, i int) {
	v.StoreArray((*[HalfWidth]float32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)))
}

// SplatHalf returns a half vector of one number.
func SplatHalf(x float32) Half { return archsimd.BroadcastFloat32x8(x) }

// TotalHalf adds the lanes: one half to the other, then neighbors, then the rest.
func TotalHalf(v Half) float32 {
	four := v.GetLo().Add(v.GetHi())
	two := four.ConcatAddPairs(four)
	return two.GetElem(0) + two.GetElem(1)
}

// LargestHalf returns the maximum of the lanes.
func LargestHalf(v Half) float32 {
	four := v.GetLo().Max(v.GetHi())
	var e [4]float32
	four.StoreArray(&e)
	return max(e[0], e[1], e[2], e[3])
}

// ExpFloor8 is ExpFloor for eight float32, without the scaled floor, which AVX2 lacks.
func ExpFloor8(x Half) Half {
	c := archsimd.BroadcastFloat32x8
	x = x.Max(c(-expLimit)).Min(c(expLimit))
	z := x.MulAdd(c(log2E), c(0.5)).Floor()
	g := x.Sub(z.Mul(c(ln2High))).Sub(z.Mul(c(ln2Low)))
	p := c(exp7).MulAdd(g, c(exp6))
	p = p.MulAdd(g, c(exp5))
	p = p.MulAdd(g, c(exp4))
	p = p.MulAdd(g, c(exp3))
	p = p.MulAdd(g, c(exp2))
	p = p.Mul(g).Mul(g).Add(g).Add(c(1))
	return power8(z).Mul(p)
}

// power8 returns 2^z for whole numbers.
func power8(z Half) Half {
	return z.ConvertToInt32().ToBits().Add(archsimd.BroadcastUint32x8(127)).ShiftAllLeft(23).BitsToFloat32()
}

// ExpSingle8 is ExpSingle for eight float32.
func ExpSingle8(x Half) Half {
	c := archsimd.BroadcastFloat32x8
	scale, half := archsimd.BroadcastFloat64x4(log2E), archsimd.BroadcastFloat64x4(0.5)
	floor := func(v archsimd.Float32x4) archsimd.Float32x4 {
		return v.ConvertToFloat64().Mul(scale).Add(half).Floor().ConvertToFloat32()
	}
	var z Half
	z = z.SetLo(floor(x.GetLo())).SetHi(floor(x.GetHi()))
	g := x.Sub(z.Mul(c(ln2High))).Sub(z.Mul(c(ln2Low)))
	p := c(exp7).Mul(g).Add(c(exp6))
	p = p.Mul(g).Add(c(exp5))
	p = p.Mul(g).Add(c(exp4))
	p = p.Mul(g).Add(c(exp3))
	p = p.Mul(g).Add(c(exp2))
	p = p.Mul(g.Mul(g)).Add(g).Add(c(1))
	return power8(z).Mul(p).Masked(x.GreaterEqual(c(-expLimit)).Or(x.IsNaN()))
}
