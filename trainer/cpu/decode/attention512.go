//go:build goexperiment.simd && amd64

package decode

import (
	"simd/archsimd"
	"unsafe"

	"temper/trainer/cpu/vector"
)

// score512 has the order of sums of the backend's attention with 16 lanes.
func (c *Cache) score512(layer int, blocks []int32, h head, n int, scale float32) {
	keys, e, w := c.keys[layer], len(h.query), h.weights
	for b := 0; b*BlockTokens < n; b++ {
		k := keys[int(blocks[b])*c.block+h.kv*BlockTokens:][:e*BlockTokens]
		vector.Scores512(unsafe.Pointer(unsafe.SliceData(h.query)), unsafe.Pointer(unsafe.SliceData(k)), unsafe.Pointer(&w[b*BlockTokens]), e, 1, scale)
	}
	full, top := n/vector.Width*vector.Width, vector.Splat(negativeInfinity)
	for i := 0; i < full; i += vector.Width {
		top = top.Max(vector.Load(w, i))
	}
	most := vector.Largest(top)
	for _, x := range w[full:n] {
		if x > most { // NaN is left to its own place
			most = x
		}
	}
	softmax512(w, full, n, most)
}

// softmax512 turns n scores into weights. The scores behind the last full vector are added
// one by one.
func softmax512(w []float32, full, n int, most float32) {
	m, acc := vector.Splat(most), vector.Splat(0)
	for i := 0; i < full; i += vector.Width {
		x := vector.ExpRounded(vector.Load(w, i).Sub(m))
		vector.Store(x, w, i)
		acc = acc.Add(x)
	}
	var all float32
	if full > 0 {
		all = vector.Total(acc)
	}
	if full < n {
		vector.Store(vector.ExpSingle(vector.Load(w, full).Sub(m)), w, full)
		for _, x := range w[full:n] {
			all += x
		}
	}
	inverse := vector.Splat(0)
	if all > 0 {
		inverse = vector.Splat(1 / all)
	}
	for i := 0; i < n; i += vector.Width {
		vector.Store(vector.Load(w, i).Mul(inverse), w, i)
	}
}

// mix512 takes heads of 32 dimensions four at a time.
func (c *Cache) mix512(layer int, blocks []int32, heads []head, n int, out []float32) {
	e, i := len(heads[0].query), 0
	for ; e == 32 && i+4 <= len(heads); i += 4 {
		c.mix32(layer, blocks, heads[i:i+4], n, out[i*e:])
	}
	for ; i < len(heads); i++ {
		c.mixAny(layer, blocks, heads[i], n, out[i*e:(i+1)*e])
	}
}

// mix32 adds up the values of four heads of 32 dimensions: eight chains at once.
func (c *Cache) mix32(layer int, blocks []int32, h []head, n int, out []float32) {
	values, width := c.values[layer], c.block/BlockTokens
	a, b, d, e := h[0], h[1], h[2], h[3]
	var a0, a1, b0, b1, d0, d1, e0, e1 vector.Vector
	for i := 0; i < n; i++ {
		v := values[int(blocks[i/vector.Width])*c.block+i%vector.Width*width:][:width]
		w := vector.Splat(a.weights[i])
		a0, a1 = w.MulAdd(vector.Load(v, a.kv), a0), w.MulAdd(vector.Load(v, a.kv+vector.Width), a1)
		w = vector.Splat(b.weights[i])
		b0, b1 = w.MulAdd(vector.Load(v, b.kv), b0), w.MulAdd(vector.Load(v, b.kv+vector.Width), b1)
		w = vector.Splat(d.weights[i])
		d0, d1 = w.MulAdd(vector.Load(v, d.kv), d0), w.MulAdd(vector.Load(v, d.kv+vector.Width), d1)
		w = vector.Splat(e.weights[i])
		e0, e1 = w.MulAdd(vector.Load(v, e.kv), e0), w.MulAdd(vector.Load(v, e.kv+vector.Width), e1)
	}
	for i, v := range [...]archsimd.Float32x16{a0, a1, b0, b1, d0, d1, e0, e1} {
		vector.Store(v, out, i*vector.Width)
	}
}

// mixAny adds up the values of one head, up to 64 dimensions at once.
func (c *Cache) mixAny(layer int, blocks []int32, h head, n int, out []float32) {
	values, width := c.values[layer], c.block/BlockTokens
	at := 0
	for ; at+4*vector.Width <= len(h.query); at += 4 * vector.Width {
		var p, q, r, s vector.Vector
		for i := 0; i < n; i++ {
			v := values[int(blocks[i/vector.Width])*c.block+i%vector.Width*width+h.kv+at:][:4*vector.Width]
			w := vector.Splat(h.weights[i])
			p, q = w.MulAdd(vector.Load(v, 0), p), w.MulAdd(vector.Load(v, vector.Width), q)
			r, s = w.MulAdd(vector.Load(v, 2*vector.Width), r), w.MulAdd(vector.Load(v, 3*vector.Width), s)
		}
		vector.Store(p, out, at)
		vector.Store(q, out, at+vector.Width)
		vector.Store(r, out, at+2*vector.Width)
		vector.Store(s, out, at+3*vector.Width)
	}
	for ; at < len(h.query); at += vector.Width {
		var p vector.Vector
		for i := 0; i < n; i++ {
			v := values[int(blocks[i/vector.Width])*c.block+i%vector.Width*width+h.kv+at:][:vector.Width]
			p = vector.Splat(h.weights[i]).MulAdd(vector.Load(v, 0), p)
		}
		vector.Store(p, out, at)
	}
}
