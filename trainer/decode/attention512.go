//go:build goexperiment.simd && amd64

package decode

import (
	"simd/archsimd"
	"unsafe"

	"temper/trainer/lanes"
)

// score512 has the order of sums of the backend's attention with 16 lanes.
func (c *Cache) score512(layer int, blocks []int32, h head, n int, scale float32) {
	keys, e, w := c.keys[layer], len(h.query), h.weights
	for b := 0; b*BlockTokens < n; b++ {
		k := keys[int(blocks[b])*c.block+h.kv*BlockTokens:][:e*BlockTokens]
		lanes.Scores512(unsafe.Pointer(unsafe.SliceData(h.query)), unsafe.Pointer(unsafe.SliceData(k)), unsafe.Pointer(&w[b*BlockTokens]), e, 1, scale)
	}
	full, top := n/lanes.Width*lanes.Width, lanes.Splat(negativeInfinity)
	for i := 0; i < full; i += lanes.Width {
		top = top.Max(lanes.Load(w, i))
	}
	most := lanes.Largest(top)
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
	m, acc := lanes.Splat(most), lanes.Splat(0)
	for i := 0; i < full; i += lanes.Width {
		x := lanes.ExpRounded(lanes.Load(w, i).Sub(m))
		lanes.Store(x, w, i)
		acc = acc.Add(x)
	}
	var all float32
	if full > 0 {
		all = lanes.Total(acc)
	}
	if full < n {
		lanes.Store(lanes.ExpSingle(lanes.Load(w, full).Sub(m)), w, full)
		for _, x := range w[full:n] {
			all += x
		}
	}
	inverse := lanes.Splat(0)
	if all > 0 {
		inverse = lanes.Splat(1 / all)
	}
	for i := 0; i < n; i += lanes.Width {
		lanes.Store(lanes.Load(w, i).Mul(inverse), w, i)
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
	var a0, a1, b0, b1, d0, d1, e0, e1 lanes.Vector
	for i := 0; i < n; i++ {
		v := values[int(blocks[i/lanes.Width])*c.block+i%lanes.Width*width:][:width]
		w := lanes.Splat(a.weights[i])
		a0, a1 = w.MulAdd(lanes.Load(v, a.kv), a0), w.MulAdd(lanes.Load(v, a.kv+lanes.Width), a1)
		w = lanes.Splat(b.weights[i])
		b0, b1 = w.MulAdd(lanes.Load(v, b.kv), b0), w.MulAdd(lanes.Load(v, b.kv+lanes.Width), b1)
		w = lanes.Splat(d.weights[i])
		d0, d1 = w.MulAdd(lanes.Load(v, d.kv), d0), w.MulAdd(lanes.Load(v, d.kv+lanes.Width), d1)
		w = lanes.Splat(e.weights[i])
		e0, e1 = w.MulAdd(lanes.Load(v, e.kv), e0), w.MulAdd(lanes.Load(v, e.kv+lanes.Width), e1)
	}
	for i, v := range [...]archsimd.Float32x16{a0, a1, b0, b1, d0, d1, e0, e1} {
		lanes.Store(v, out, i*lanes.Width)
	}
}

// mixAny adds up the values of one head, up to 64 dimensions at once.
func (c *Cache) mixAny(layer int, blocks []int32, h head, n int, out []float32) {
	values, width := c.values[layer], c.block/BlockTokens
	at := 0
	for ; at+4*lanes.Width <= len(h.query); at += 4 * lanes.Width {
		var p, q, r, s lanes.Vector
		for i := 0; i < n; i++ {
			v := values[int(blocks[i/lanes.Width])*c.block+i%lanes.Width*width+h.kv+at:][:4*lanes.Width]
			w := lanes.Splat(h.weights[i])
			p, q = w.MulAdd(lanes.Load(v, 0), p), w.MulAdd(lanes.Load(v, lanes.Width), q)
			r, s = w.MulAdd(lanes.Load(v, 2*lanes.Width), r), w.MulAdd(lanes.Load(v, 3*lanes.Width), s)
		}
		lanes.Store(p, out, at)
		lanes.Store(q, out, at+lanes.Width)
		lanes.Store(r, out, at+2*lanes.Width)
		lanes.Store(s, out, at+3*lanes.Width)
	}
	for ; at < len(h.query); at += lanes.Width {
		var p lanes.Vector
		for i := 0; i < n; i++ {
			v := values[int(blocks[i/lanes.Width])*c.block+i%lanes.Width*width+h.kv+at:][:lanes.Width]
			p = lanes.Splat(h.weights[i]).MulAdd(lanes.Load(v, 0), p)
		}
		lanes.Store(p, out, at)
	}
}
