//go:build goexperiment.simd && amd64

package attention

import (
	"math"
	"math/rand/v2"
	"simd/archsimd"
	"slices"
	"testing"
	"unsafe"
)

// TestProductsAreChains: whatever the tile, each number of a product is one chain of fused
// multiplications, from the first term on. Inputs have 12 bits, so that a fused step is
// exact in double precision before it is rounded.
func TestProductsAreChains(t *testing.T) {
	kinds := available()
	delete(kinds, "scalar")
	draw := rand.New(rand.NewPCG(1, 2))
	fill := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(draw.IntN(1<<12)-1<<11) / (1 << 11)
		}
		return out
	}
	for name, k := range kinds {
		for _, rows := range []int{1, 5, 6, 13, 24} {
			for _, columns := range []int{32, 64, 128, 160} {
				for _, depth := range []int{1, 7, 50} {
					p := product{
						x: fill(rows * depth), xRow: depth, xStep: 1, y: fill(depth * columns), yStep: columns, outRow: columns,
						rows: rows, columns: columns, depth: depth,
					}
					if draw.IntN(2) == 0 {
						p.xRow, p.xStep = 1, rows
					}
					before := fill(rows * columns)
					for _, p.add = range []bool{false, true} {
						p.out = slices.Clone(before)
						k.product(p)
						if want := chains(p, before); !slices.Equal(p.out, want) {
							t.Errorf("%s: %d x %d of depth %d, add %v: not the chains", name, rows, columns, depth, p.add)
						}
					}
				}
			}
		}
	}
	if k := kinds["avx2"]; k != nil { // which has vectors for eight columns as well
		p := product{x: fill(7), xRow: 1, xStep: 1, y: fill(24), yStep: 24, out: make([]float32, 7*24), outRow: 24, rows: 7, columns: 24, depth: 1}
		if k.product(p); !slices.Equal(p.out, chains(p, nil)) {
			t.Error("avx2: 24 columns: not the chains")
		}
	}
}

// chains is what a product has to be.
func chains(p product, before []float32) []float32 {
	out := make([]float32, p.rows*p.columns)
	for r := range p.rows {
		for c := range p.columns {
			var sum float32
			for k := range p.depth {
				sum = float32(float64(p.x[r*p.xRow+k*p.xStep])*float64(p.y[k*p.yStep+c]) + float64(sum))
			}
			if p.add {
				sum += before[r*p.columns+c]
			}
			out[r*p.columns+c] = sum
		}
	}
	return out
}

// TestExponentialsAreThoseOfTheBackend: the loop in assembly has the bits of the backend's
// function, for numbers of all sizes that scores below the largest have, and those beyond.
func TestExponentialsAreThoseOfTheBackend(t *testing.T) {
	if !archsimd.X86.AVX2() || !archsimd.X86.FMA() {
		t.Skip("no AVX2")
	}
	draw := rand.New(rand.NewPCG(3, 4))
	const most = 0.75
	row := make([]float32, 8000)
	for i := range row {
		row[i] = most - float32(draw.ExpFloat64()*math.Pow(10, float64(draw.IntN(7)-4)))
	}
	copy(row, []float32{most, float32(math.Inf(-1)), -math.MaxFloat32, most - 88.02969, most - 88.0297, float32(math.NaN())})
	want, sum := slices.Clone(row), archsimd.BroadcastFloat32x8(0)
	for i := 0; i < len(row); i += halfLanes {
		e := backendExp(loadHalf(halfAt(want, i)).Sub(archsimd.BroadcastFloat32x8(most)))
		storeHalf(e, halfAt(want, i))
		sum = sum.Add(e)
	}
	var got, sums [halfLanes]float32
	exponentials(unsafe.Pointer(&row[0]), unsafe.Pointer(&got), len(row)/halfLanes, most)
	sum.StoreArray(&sums)
	if !slices.Equal(row, want) || got != sums {
		t.Error("other bits than the backend")
	}
	if exponentials(nil, unsafe.Pointer(&got), 0, most); got != [halfLanes]float32{} {
		t.Errorf("the sum of nothing is %v", got)
	}
}

// backendExp is the approximation of e^x that the backend's kernels for AVX2 have,
// operation by operation.
func backendExp(x half) half {
	c := archsimd.BroadcastFloat32x8
	x = x.Max(c(-88.02969187150841)).Min(c(88.02969187150841))
	z := x.MulAdd(c(math.Log2E), c(0.5)).Floor()
	g := x.Sub(z.Mul(c(0.693359375))).Sub(z.Mul(c(-2.12194440e-4)))
	p := c(1.9875691500e-4)
	for _, term := range []float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p = p.MulAdd(g, c(term))
	}
	p = p.Mul(g).Mul(g).Add(g).Add(c(1))
	return z.ConvertToInt32().ToBits().Add(archsimd.BroadcastUint32x8(127)).ShiftAllLeft(23).BitsToFloat32().Mul(p)
}
