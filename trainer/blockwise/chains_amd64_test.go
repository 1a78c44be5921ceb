//go:build goexperiment.simd && amd64

package blockwise

import (
	"math/rand/v2"
	"slices"
	"testing"
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
