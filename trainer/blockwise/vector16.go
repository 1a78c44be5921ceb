//go:build goexperiment.simd && amd64

package blockwise

import (
	"math"
	"simd/archsimd"
	"unsafe"

	_ "github.com/gomlx/compute/gobackend" // owns exp32
)

//go:linkname exp32 github.com/gomlx/compute/internal/fastmath.Exp32
func exp32(float32) float32

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

// The backend's approximation of e^x in attention, after Cephes.
const (
	expLimit = 88.02969187150841
	ln2High  = 0.693359375
	ln2Low   = -2.12194440e-4
	exp7     = 1.9875691500e-4
	exp6     = 1.3981999507e-3
	exp5     = 8.3334519073e-3
	exp4     = 4.1665795894e-2
	exp3     = 1.6666665459e-1
	exp2     = 5.0000001201e-1
)

// exp is e^x, operation by operation as in the backend.
func exp(x vector) vector {
	x = x.Max(splat(-expLimit)).Min(splat(expLimit))
	z := x.MulAdd(splat(math.Log2E), splat(0.5)).RoundScaled(0)
	g := x.Sub(z.Mul(splat(ln2High))).Sub(z.Mul(splat(ln2Low)))
	p := splat(exp7).MulAdd(g, splat(exp6))
	p = p.MulAdd(g, splat(exp5))
	p = p.MulAdd(g, splat(exp4))
	p = p.MulAdd(g, splat(exp3))
	p = p.MulAdd(g, splat(exp2))
	p = p.Mul(g).Mul(g).Add(g).Add(splat(1))
	return z.ConvertToInt32().ToBits().Add(archsimd.BroadcastUint32x16(127)).ShiftAllLeft(23).BitsToFloat32().Mul(p)
}
