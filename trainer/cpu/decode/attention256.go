//go:build goexperiment.simd && amd64

package decode

import (
	"unsafe"

	"temper/trainer/cpu/vector"
)

// score256 has the order of sums of the backend's attention with 8 lanes.
func (c *Cache) score256(layer int, blocks []int32, h head, n int, scale float32) {
	keys, e, w := c.keys[layer], len(h.query), h.weights
	for b := 0; b*BlockTokens < n; b++ {
		k := keys[int(blocks[b])*c.block+h.kv*BlockTokens:][:e*BlockTokens]
		vector.Scores256(unsafe.Pointer(unsafe.SliceData(h.query)), unsafe.Pointer(unsafe.SliceData(k)), unsafe.Pointer(&w[b*BlockTokens]), e, 1, scale)
	}
	full, top := n/vector.HalfWidth*vector.HalfWidth, vector.SplatHalf(negativeInfinity)
	for i := 0; i < full; i += vector.HalfWidth {
		top = top.Max(vector.LoadHalf(w, i))
	}
	most := vector.LargestHalf(top)
	for _, x := range w[full:n] {
		if x > most { // NaN is left to its own place
			most = x
		}
	}
	softmax256(w, full, n, most)
}

// softmax256 turns n scores into weights. The scores behind the last full vector are added
// one by one.
func softmax256(w []float32, full, n int, most float32) {
	m, acc := vector.SplatHalf(most), vector.SplatHalf(0)
	for i := 0; i < full; i += vector.HalfWidth {
		x := vector.ExpFloor8(vector.LoadHalf(w, i).Sub(m))
		vector.StoreHalf(x, w, i)
		acc = acc.Add(x)
	}
	var all float32
	if full > 0 {
		all = vector.TotalHalf(acc)
	}
	if full < n {
		vector.StoreHalf(vector.ExpSingle8(vector.LoadHalf(w, full).Sub(m)), w, full)
		for _, x := range w[full:n] {
			all += x
		}
	}
	inverse := vector.SplatHalf(0)
	if all > 0 {
		inverse = vector.SplatHalf(1 / all)
	}
	for i := 0; i < n; i += vector.HalfWidth {
		vector.StoreHalf(vector.LoadHalf(w, i).Mul(inverse), w, i)
	}
}

// mix256 takes two heads and 32 dimensions of each at a time: eight chains.
func (c *Cache) mix256(layer int, blocks []int32, heads []head, n int, out []float32) {
	e, token := len(heads[0].query), c.block/BlockTokens
	clear(out[:len(heads)*e])
	var unused [32]float32
	for i := 0; i < len(heads); i += 2 {
		a, b := &heads[i], &heads[i]
		outA, outB := out[i*e:], unused[:]
		if i+1 < len(heads) {
			b, outB = &heads[i+1], out[(i+1)*e:]
		}
		for at := 0; at < n; at += BlockTokens {
			values := c.values[layer][int(blocks[at/BlockTokens])*c.block:][:c.block]
			tokens := min(BlockTokens, n-at)
			for d := 0; d < e; {
				mix, columns := mix256x32, 32
				if e-d < columns {
					mix, columns = mix256x16, 16
				}
				toB := outB
				if i+1 < len(heads) {
					toB = outB[d:]
				}
				mix(unsafe.Pointer(&a.weights[at]), unsafe.Pointer(&b.weights[at]), unsafe.Pointer(&values[a.kv+d]), unsafe.Pointer(&values[b.kv+d]),
					unsafe.Pointer(&outA[d]), unsafe.Pointer(&toB[0]), 4*token, tokens)
				d += columns
			}
		}
	}
}

// mix256x32 adds 32 dimensions of the weighted values of some tokens to the sums of two
// heads: a weight for each token, and values that are stride bytes apart.
//
//go:noescape
func mix256x32(weightsA, weightsB, valuesA, valuesB, outA, outB unsafe.Pointer, stride, tokens int)

// mix256x16 is mix256x32 for 16 dimensions.
//
//go:noescape
func mix256x16(weightsA, weightsB, valuesA, valuesB, outA, outB unsafe.Pointer, stride, tokens int)
