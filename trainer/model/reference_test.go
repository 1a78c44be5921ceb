package model_test

import (
	"fmt"
	"math"

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
		r.layer(fmt.Sprintf("model.layers.%d.", i), x)
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
func (r reference) layer(p string, x [][]float64) {
	e := r.cfg.HeadDim
	group := r.cfg.NumAttentionHeads / r.cfg.NumKeyValueHeads
	var keys, values [][]float64
	for t := range x {
		n := r.norm(p+"input_layernorm.weight", x[t])
		q := r.heads(p+"self_attn.q", n, t*r.stride)
		keys = append(keys, r.heads(p+"self_attn.k", n, t*r.stride))
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
func (r reference) heads(p string, n []float64, position int) []float64 {
	y, e := r.linear(p+"_proj.weight", n), r.cfg.HeadDim
	for h := 0; h < len(y); h += e {
		head := r.norm(p+"_norm.weight", y[h:h+e])
		for i := range e / 2 {
			angle := float64(position) / math.Pow(r.cfg.RopeTheta, 2*float64(i)/float64(e))
			a, b := head[i], head[i+e/2]
			y[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			y[h+i+e/2] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
	return y
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
