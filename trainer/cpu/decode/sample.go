//go:build goexperiment.simd && amd64

package decode

import (
	"math"

	"temper/trainer/model"
)

// farBelow is the score of a column beyond the vocabulary.
const farBelow = -1e30

// answer samples the next token after each token that asks for it.
func (p *Pass) answer(tokens []Token) {
	d, n := p.cfg.HiddenSize, 0
	for i := range tokens {
		if tokens[i].Sample {
			p.norm(p.h[n*d:(n+1)*d], p.x[i*d:(i+1)*d], p.net.vectors[model.NameNorm])
			n++
		}
	}
	p.net.head.multiply(p.logits, p.h, n, p.net.panel, p.tile)
	n = 0
	for i := range tokens {
		if tokens[i].Sample {
			p.sampler.sample(p.net.arithmetic, &tokens[i], p.logits[n*p.net.head.padded:][:p.net.head.padded])
			n++
		}
	}
}

// sampler draws from scores.
type sampler struct {
	vocabulary int
	chances    []float32 // room for the weights of all scores
}

// sample selects a token as the engine's graph does, and may change the scores.
func (s *sampler) sample(a *arithmetic, t *Token, logits []float32) {
	for i := s.vocabulary; i < len(logits); i++ {
		logits[i] = farBelow
	}
	copy(t.Logits, logits)
	likeliest := int32(0)
	if t.Greedy > 0 {
		for i, x := range logits {
			if x > logits[likeliest] || math.IsNaN(float64(x)) {
				likeliest = int32(i)
			}
		}
	}
	if len(s.chances) < len(logits) {
		s.chances = make([]float32, len(logits))
	}
	weights := s.chances[:len(logits)]
	a.soften(logits, weights, t.Scale)
	all := a.sum(weights[:s.vocabulary])
	t.Next = likeliest
	if !(t.Greedy > 0) {
		t.Next = draw(a, weights, t.Uniform)
	}
	target := float32(0)
	if int(t.Next) < len(logits) {
		target = logits[t.Next]
	}
	t.Logprob = target - float32(math.Log(float64(all)))
}

// draw replaces weights by their running sum, and returns how many sums do not exceed
// the given part of the last one.
func draw(a *arithmetic, weights []float32, uniform float32) int32 {
	var running float32
	for i, w := range weights {
		running += w
		weights[i] = running
	}
	return a.countUpTo(weights, running*uniform)
}
