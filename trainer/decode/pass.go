//go:build goexperiment.simd && amd64

package decode

import (
	"fmt"
	"math"

	"temper/trainer/model"
)

// Pass computes with one network over one cache. It belongs to one goroutine. Networks that
// follow one another have the same choice of kernels.
type Pass struct {
	cfg      model.Config
	net      *Network
	cache    *Cache
	cos, sin []float32
	length   int
	scratch
}

// scratch holds what a pass computes, for as many rows as it had at most.
type scratch struct {
	rows                       int
	x, h, qkv, a, out, gu, act []float32
	logits, chances            []float32
	tile                       []float32   // a panel of a tile of weights
	weights                    [][]float32 // of heads
	heads                      []head
}

// NewPass makes a pass over a cache of so many blocks, for contexts up to a length.
func NewPass(cfg model.Config, blocks, length int) *Pass {
	p := &Pass{cfg: cfg, cache: newCache(cfg.NumHiddenLayers, blocks, cfg.NumKeyValueHeads*cfg.HeadDim), length: length}
	p.cos, p.sin = rope(cfg, length)
	p.heads = make([]head, cfg.NumAttentionHeads)
	for range p.heads {
		p.weights = append(p.weights, make([]float32, (length+width-1)/width*width))
	}
	return p
}

// Use replaces the network. What the cache holds was made with the old one.
func (p *Pass) Use(n *Network) { p.net = n }

// Copy copies keys and values of the first n tokens of a block to another one.
func (p *Pass) Copy(from, to, n int) { p.cache.Copy(from, to, n) }

// grow makes room for rows.
func (p *Pass) grow(rows int) {
	if rows <= p.rows {
		return
	}
	p.rows = rows
	l, room := &p.net.layers[0], rows+spareRows
	of := func(width int) []float32 { return make([]float32, room*width) }
	p.x, p.h, p.a = of(p.cfg.HiddenSize), of(p.cfg.HiddenSize), of(p.cfg.NumAttentionHeads*p.cfg.HeadDim)
	p.qkv, p.out, p.gu, p.act = of(l.qkv.padded), of(max(l.o.padded, l.down.padded)), of(l.gateUp.padded), of(p.cfg.IntermediateSize)
	p.logits = of(p.net.head.padded)
	p.tile = make([]float32, p.net.panel*wideTile)
}

// Run computes the tokens and answers those that ask for it.
func (p *Pass) Run(tokens []Token) error {
	if p.net == nil {
		return fmt.Errorf("decode %d tokens: no network is in use", len(tokens))
	}
	p.grow(len(tokens))
	d := p.cfg.HiddenSize
	for i, t := range tokens {
		values(p.x[i*d:(i+1)*d], p.net.embed, int(t.ID)*d)
	}
	for i := range p.net.layers {
		p.layer(i, tokens)
	}
	p.answer(tokens)
	return nil
}

// layer computes one layer of all tokens.
func (p *Pass) layer(i int, tokens []Token) {
	l, n := &p.net.layers[i], len(tokens)
	p.normRows(n, l.attnNorm)
	l.qkv.multiply(p.qkv, p.h, n, p.net.panel, p.tile)
	e, q, kv := p.cfg.HeadDim, p.cfg.NumAttentionHeads*p.cfg.HeadDim, p.cfg.NumKeyValueHeads*p.cfg.HeadDim
	for r := range tokens {
		t, row := &tokens[r], p.qkv[r*l.qkv.padded:]
		cos, sin := p.cos[t.Position*e/2:][:e/2], p.sin[t.Position*e/2:][:e/2]
		for at := 0; at < q+kv; at += e {
			weight := l.qNorm
			if at >= q {
				weight = l.kNorm
			}
			p.norm(row[at:at+e], row[at:at+e], weight)
			rotate(row[at:at+e], cos, sin)
		}
		p.cache.write(i, t, row[q:q+kv], row[q+kv:q+2*kv])
	}
	for r := range tokens {
		p.attend(i, &tokens[r], p.qkv[r*l.qkv.padded:][:q], p.a[r*q:(r+1)*q])
	}
	l.o.multiply(p.out, p.a, n, p.net.panel, p.tile)
	p.addRows(n, l.o.padded)
	p.normRows(n, l.mlpNorm)
	l.gateUp.multiply(p.gu, p.h, n, p.net.panel, p.tile)
	p.activate(n, l.gateUp.padded)
	l.down.multiply(p.out, p.act, n, p.net.panel, p.tile)
	p.addRows(n, l.down.padded)
}

// attend answers the queries of a token.
func (p *Pass) attend(layer int, t *Token, queries, out []float32) {
	e, groups := p.cfg.HeadDim, p.cfg.NumAttentionHeads/p.cfg.NumKeyValueHeads
	scale := float32(1 / math.Sqrt(float64(e)))
	n := t.Position + 1
	for i := range p.heads {
		h := head{query: queries[i*e : (i+1)*e], kv: i / groups * e, weights: p.weights[i]}
		p.net.vectors.score(p.cache, layer, t.Blocks, h, n, scale)
		p.heads[i] = h
	}
	p.net.vectors.mix(p.cache, layer, t.Blocks, p.heads, n, out)
}

// normRows puts the norms of x into h.
func (p *Pass) normRows(n int, weight []float32) {
	d := p.cfg.HiddenSize
	for r := range n {
		p.norm(p.h[r*d:(r+1)*d], p.x[r*d:(r+1)*d], weight)
	}
}

// norm is x / rms(x) * weight.
func (p *Pass) norm(out, x, weight []float32) {
	mean := p.net.vectors.sumOfSquares(x) * float32(1/float64(len(x)))
	p.net.vectors.scale(out, x, weight, 1/float32(math.Sqrt(float64(mean+float32(p.cfg.RMSNormEps)))))
}

// rotate applies the angles of a position to a head.
func rotate(x, cos, sin []float32) {
	half := len(x) / 2
	a, b := x[:half], x[half:]
	cos, sin, b = cos[:half], sin[:half], b[:half]
	for i := range a {
		u, v := a[i], b[i]
		a[i] = float32(u*cos[i]) + float32(-v*sin[i])
		b[i] = float32(v*cos[i]) + float32(u*sin[i])
	}
}

// addRows adds the rows of a product to x.
func (p *Pass) addRows(n, stride int) {
	d := p.cfg.HiddenSize
	for r := range n {
		p.net.vectors.add(p.x[r*d:(r+1)*d], p.out[r*stride:][:d])
	}
}

// activate is the SwiGLU of the rows.
func (p *Pass) activate(n, stride int) {
	f := p.cfg.IntermediateSize
	for r := range n {
		p.net.vectors.swiglu(p.act[r*f:(r+1)*f], p.gu[r*stride:][:f], p.gu[r*stride+f:][:f])
	}
}
