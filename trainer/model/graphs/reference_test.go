package graphs_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/trainer/model"
)

// reference is the network in plain loops over float64, written from the
// architecture's description and slow enough to be read.
type reference struct {
	cfg model.Config
	w   map[string]model.Tensor
	// stride is the distance between the positions of neighbouring tokens.
	stride int
}

func newReference(cfg model.Config, ts []model.Tensor) reference {
	r := reference{cfg: cfg, w: map[string]model.Tensor{}, stride: 1}
	for _, t := range ts {
		r.w[t.Name] = t
	}
	return r
}

// logits returns the scores over the vocabulary after each token of one sequence.
func (r reference) logits(tokens []int32) [][]float64 {
	var x [][]float64
	for _, t := range tokens {
		x = append(x, r.row("model.embed_tokens.weight", int(t)))
	}
	for i := range r.cfg.NumHiddenLayers {
		turns := r.cfg.NoRopeEvery == 0 || i%r.cfg.NoRopeEvery != r.cfg.NoRopeEvery-1
		r.layer(fmt.Sprintf("model.layers.%d.", i), x, turns)
	}
	head := "lm_head.weight"
	if r.cfg.TieWordEmbeddings {
		head = "model.embed_tokens.weight"
	}
	var out [][]float64
	for t := range x {
		out = append(out, r.linear(head, r.norm("model.norm.weight", x[t])))
	}
	return out
}

// layer adds attention and feed-forward to the residual stream x in place.
func (r reference) layer(p string, x [][]float64, turns bool) {
	e := r.cfg.HeadDim
	group := r.cfg.NumAttentionHeads / r.cfg.NumKeyValueHeads
	var keys, values [][]float64
	for t := range x {
		n := r.norm(p+"input_layernorm.weight", x[t])
		q := r.heads(p+"self_attn.q", n, t*r.stride, turns)
		keys = append(keys, r.heads(p+"self_attn.k", n, t*r.stride, turns))
		values = append(values, r.linear(p+"self_attn.v_proj.weight", n))
		mixed := make([]float64, len(q))
		for h := range r.cfg.NumAttentionHeads {
			kv := h / group * e
			scores, sum := make([]float64, t+1), 0.0
			for s := range scores {
				for d := range e {
					scores[s] += q[h*e+d] * keys[s][kv+d] / math.Sqrt(float64(e))
				}
				scores[s] = math.Exp(scores[s])
				sum += scores[s]
			}
			for s := range scores {
				for d := range e {
					mixed[h*e+d] += scores[s] / sum * values[s][kv+d]
				}
			}
		}
		add(x[t], r.linear(p+"self_attn.o_proj.weight", mixed))
		n = r.norm(p+"post_attention_layernorm.weight", x[t])
		gate, up := r.linear(p+"mlp.gate_proj.weight", n), r.linear(p+"mlp.up_proj.weight", n)
		for i := range gate {
			gate[i] *= up[i] / (1 + math.Exp(-gate[i]))
		}
		add(x[t], r.linear(p+"mlp.down_proj.weight", gate))
	}
}

// heads projects, normalises each head and rotates it by the position.
func (r reference) heads(p string, n []float64, position int, turns bool) []float64 {
	y, e := r.linear(p+"_proj.weight", n), r.cfg.HeadDim
	for h := 0; h < len(y); h += e {
		head := slices.Clone(y[h : h+e])
		if !r.cfg.NoQKNorm {
			head = r.norm(p+"_norm.weight", head)
		}
		copy(y[h:], head)
		for i := range e / 2 {
			if !turns {
				break
			}
			period, scale := r.period(i)
			angle := 2 * math.Pi * float64(position) / period
			a, b := head[i]*scale, head[i+e/2]*scale
			y[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			y[h+i+e/2] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
	return y
}

// period is the number of positions in which pair i turns once, and the factor of its
// length, as papers have them.
func (r reference) period(i int) (period, scale float64) {
	c, rope := r.cfg, r.cfg.Rope
	period = 2 * math.Pi * math.Pow(c.RopeTheta, 2*float64(i)/float64(c.HeadDim))
	turns := float64(rope.OriginalPositions) / period
	switch rope.Kind {
	case model.RopeLinear:
		return period * rope.Factor, 1
	case model.RopeLlama3:
		smooth := min(max((turns-rope.LowFreqFactor)/(rope.HighFreqFactor-rope.LowFreqFactor), 0), 1)
		return period / (smooth + (1-smooth)/rope.Factor), 1
	case model.RopeYarn: // with bounds that fall on whole pairs
		low, high := r.pairOf(rope.BetaFast), r.pairOf(rope.BetaSlow)
		keep := 1 - min(max((float64(i)-low)/(high-low), 0), 1)
		return period / (keep + (1-keep)/rope.Factor), 1 + 0.1*math.Log(rope.Factor)
	}
	return period, 1
}

// pairOf is the pair, counted in fractions, that turns so many times over the original
// positions; outwards to a whole one.
func (r reference) pairOf(turns float64) float64 {
	c := r.cfg
	pair := float64(c.HeadDim) / 2 * math.Log(float64(c.Rope.OriginalPositions)/(turns*2*math.Pi)) / math.Log(c.RopeTheta)
	if turns == c.Rope.BetaFast {
		return max(math.Floor(pair), 0)
	}
	return min(math.Ceil(pair), float64(c.HeadDim-1))
}

func (r reference) row(name string, i int) []float64 {
	t := r.w[name]
	n := t.Shape[len(t.Shape)-1]
	out := make([]float64, n)
	for k := range out {
		out[k] = float64(t.Data[i*n+k])
	}
	return out
}

func (r reference) linear(name string, x []float64) []float64 {
	out := make([]float64, r.w[name].Shape[0])
	for o := range out {
		for i, w := range r.row(name, o) {
			out[o] += w * x[i]
		}
	}
	if bias := strings.TrimSuffix(name, "weight") + "bias"; r.w[bias].Data != nil {
		add(out, r.row(bias, 0))
	}
	return out
}

func (r reference) norm(name string, x []float64) []float64 {
	ms := 0.0
	for _, v := range x {
		ms += v * v / float64(len(x))
	}
	out := r.row(name, 0)
	for i := range out {
		out[i] *= x[i] / math.Sqrt(ms+r.cfg.RMSNormEps)
	}
	return out
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}
