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
	tokens   []Token // of the pass under way
	sampler  sampler
	scratch
}

var _ model.Ops[rows] = (*Pass)(nil)

// rows are values of the tokens of a pass: width of each, stride apart.
type rows struct {
	data          []float32
	width, stride int
}

// of is the row of token r.
func (x rows) of(r int) []float32 { return x.data[r*x.stride:][:x.width] }

// scratch holds the intermediate values of a pass, for the largest number of rows so far.
type scratch struct {
	capacity                   int // tokens
	x, h, qkv, a, out, gu, act []float32
	logits                     []float32
	tile                       []float32   // a panel of a tile of weights
	weights                    [][]float32 // of heads
	heads                      []head
}

// NewPass makes a pass over a cache of so many blocks, for contexts up to a length.
func NewPass(cfg model.Config, blocks, length int) *Pass {
	p := &Pass{cfg: cfg, cache: newCache(cfg.NumHiddenLayers, blocks, cfg.NumKeyValueHeads*cfg.HeadDim), length: length, sampler: sampler{vocabulary: cfg.VocabSize}}
	p.cos, p.sin = cfg.Rotations(length)
	p.heads = make([]head, cfg.NumAttentionHeads)
	for range p.heads {
		p.weights = append(p.weights, make([]float32, (length+width-1)/width*width))
	}
	return p
}

// Use replaces the network. The cache keeps the keys and values of the old one.
func (p *Pass) Use(n *Network) { p.net = n }

// Copy copies keys and values of the first n tokens of a block to another one.
func (p *Pass) Copy(from, to, n int) { p.cache.Copy(from, to, n) }

// grow makes room for n tokens.
func (p *Pass) grow(n int) {
	if n <= p.capacity {
		return
	}
	p.capacity = n
	l, c, room := &p.net.layers[0], p.cfg, n+spareRows
	padded := func(l model.Linear) int { return p.net.products[l.Weight].padded }
	of := func(width int) []float32 { return make([]float32, room*width) }
	p.x, p.h, p.a = of(c.HiddenSize), of(c.HiddenSize), of(c.NumAttentionHeads*c.HeadDim)
	p.qkv, p.out, p.gu, p.act = of(padded(l.Q)), of(max(padded(l.O), padded(l.Down))), of(padded(l.Gate)), of(c.IntermediateSize)
	p.logits = of(p.net.head.padded)
	p.tile = make([]float32, p.net.panel*wideTile)
}

// Run computes the tokens and answers the tokens that ask for it.
func (p *Pass) Run(tokens []Token) error {
	if p.net == nil {
		return fmt.Errorf("decode %d tokens: no network is in use", len(tokens))
	}
	p.grow(len(tokens))
	p.tokens = tokens
	d := p.cfg.HiddenSize
	for i, t := range tokens {
		values(p.x[i*d:(i+1)*d], p.net.embed, int(t.ID)*d)
	}
	for i := range p.net.layers {
		p.layer(&p.net.layers[i])
	}
	p.answer(tokens)
	return nil
}

// layer computes one layer of all tokens.
func (p *Pass) layer(l *model.Layer) {
	x := rows{p.x, p.cfg.HiddenSize, p.cfg.HiddenSize}
	q, k, v := model.QKV(p, l, x)
	for r := range p.tokens {
		p.cache.write(l.Index, &p.tokens[r], k.of(r), v.of(r))
	}
	answers := rows{p.a, q.width, q.width}
	for r := range p.tokens {
		p.attend(l.Index, &p.tokens[r], q.of(r), answers.of(r))
	}
	p.add(x, p.Linear(l.O, answers))
	p.add(x, model.FeedForward(p, l, x))
}

// add adds y to x.
func (p *Pass) add(x, y rows) {
	for r := range p.tokens {
		p.net.arithmetic.add(x.of(r), y.of(r))
	}
}

// multiply is x times the product that begins with a weight: out, whose rows have the width of
// the matrix.
func (p *Pass) multiply(weight string, out []float32, x rows) rows {
	m := p.net.products[weight]
	m.multiply(out, x.data, len(p.tokens), p.net.panel, p.tile)
	y := rows{out, m.width, m.padded}
	if m.bias != nil {
		for r := range p.tokens {
			p.net.arithmetic.add(y.of(r), m.bias)
		}
	}
	return y
}

// part is columns from..from+width of x.
func (x rows) part(from, width int) rows { return rows{x.data[from:], width, x.stride} }

// Norm puts x / rms(x) * weight into memory that the next Norm uses again.
func (p *Pass) Norm(weight string, x rows) rows {
	h := rows{p.h, x.width, x.width}
	for r := range p.tokens {
		p.norm(h.of(r), x.of(r), p.net.vectors[weight])
	}
	return h
}

// HeadNorm changes x.
func (p *Pass) HeadNorm(weight string, x rows) rows {
	w := p.net.vectors[weight]
	for r := range p.tokens {
		for row := x.of(r); len(row) > 0; row = row[len(w):] {
			p.norm(row[:len(w)], row[:len(w)], w)
		}
	}
	return x
}

// Rotate changes x.
func (p *Pass) Rotate(x rows) rows {
	e := p.cfg.HeadDim
	for r := range p.tokens {
		at := p.tokens[r].Position * e / 2
		for row := x.of(r); len(row) > 0; row = row[e:] {
			rotate(row[:e], p.cos[at:][:e/2], p.sin[at:][:e/2])
		}
	}
	return x
}

// ProjectQKV projects x to the heads of queries, keys and values, side by side.
func (p *Pass) ProjectQKV(l *model.Layer, x rows) (q, k, v rows) {
	all := p.multiply(l.Q.Weight, p.qkv, x)
	return all.part(0, l.Q.Out), all.part(l.Q.Out, l.K.Out), all.part(l.Q.Out+l.K.Out, l.V.Out)
}

// GateUp projects x to gate and up, side by side.
func (p *Pass) GateUp(l *model.Layer, x rows) (gate, up rows) {
	both := p.multiply(l.Gate.Weight, p.gu, x)
	return both.part(0, l.Gate.Out), both.part(l.Gate.Out, l.Up.Out)
}

// Gated is gate * sigmoid(gate) * up.
func (p *Pass) Gated(gate, up rows) rows {
	out := rows{p.act, gate.width, gate.width}
	for r := range p.tokens {
		p.net.arithmetic.swiglu(out.of(r), gate.of(r), up.of(r))
	}
	return out
}

// Linear projects x into memory that the next Linear uses again.
func (p *Pass) Linear(l model.Linear, x rows) rows { return p.multiply(l.Weight, p.out, x) }

// attend answers the queries of a token.
func (p *Pass) attend(layer int, t *Token, queries, out []float32) {
	e, groups := p.cfg.HeadDim, p.cfg.NumAttentionHeads/p.cfg.NumKeyValueHeads
	scale := float32(1 / math.Sqrt(float64(e)))
	n := t.Position + 1
	for i := range p.heads {
		h := head{query: queries[i*e : (i+1)*e], kv: i / groups * e, weights: p.weights[i]}
		p.net.arithmetic.score(p.cache, layer, t.Blocks, h, n, scale)
		p.heads[i] = h
	}
	p.net.arithmetic.mix(p.cache, layer, t.Blocks, p.heads, n, out)
}

// norm is x / rms(x) * weight.
func (p *Pass) norm(out, x, weight []float32) {
	mean := p.net.arithmetic.sumOfSquares(x) * float32(1/float64(len(x)))
	p.net.arithmetic.scale(out, x, weight, 1/float32(math.Sqrt(float64(mean+float32(p.cfg.RMSNormEps)))))
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
