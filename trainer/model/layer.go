package model

import "fmt"

// Names of the tensors outside the layers, as Hugging Face checkpoints have them.
const (
	NameEmbed = "model.embed_tokens.weight"
	NameNorm  = "model.norm.weight"
	NameHead  = "lm_head.weight"
)

// Layer describes one layer: the names of its tensors and how they are used.
type Layer struct {
	Index int
	// AttnNorm and MLPNorm are the weights [D] of the norms before both halves.
	AttnNorm, MLPNorm string
	Q, K, V, O        Linear
	// QNorm and KNorm are the weights [E] of the norms of the heads; empty where there are
	// none.
	QNorm, KNorm   string
	Gate, Up, Down Linear
	// Rotates states whether queries and keys turn with their positions.
	Rotates bool
}

// Linear is a product with a weight [out, in], and a bias [out] where Bias is not empty.
type Linear struct {
	Weight, Bias string
	In, Out      int
	// Residual marks a projection back into the residual stream.
	Residual bool
}

// Layer describes layer i, from 0.
func (c Config) Layer(i int) Layer {
	name := func(part string) string { return fmt.Sprintf("model.layers.%d.%s", i, part) }
	linear := func(part string, in, out int, bias bool) Linear {
		l := Linear{Weight: name(part + ".weight"), In: in, Out: out}
		if bias {
			l.Bias = name(part + ".bias")
		}
		return l
	}
	d, f := c.HiddenSize, c.IntermediateSize
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	l := Layer{
		Index:    i,
		AttnNorm: name("input_layernorm.weight"), MLPNorm: name("post_attention_layernorm.weight"),
		Q: linear("self_attn.q_proj", d, q, c.QKVBias), K: linear("self_attn.k_proj", d, kv, c.QKVBias), V: linear("self_attn.v_proj", d, kv, c.QKVBias),
		O:    linear("self_attn.o_proj", q, d, c.OBias),
		Gate: linear("mlp.gate_proj", d, f, c.MLPBias), Up: linear("mlp.up_proj", d, f, c.MLPBias), Down: linear("mlp.down_proj", f, d, c.MLPBias),
		Rotates: c.rotates(i),
	}
	l.O.Residual, l.Down.Residual = true, true
	if !c.NoQKNorm {
		l.QNorm, l.KNorm = name("self_attn.q_norm.weight"), name("self_attn.k_norm.weight")
	}
	return l
}

// rotates reports whether layer i turns queries and keys.
func (c Config) rotates(i int) bool { return c.NoRopeEvery == 0 || (i+1)%c.NoRopeEvery != 0 }

// Layers describes all layers.
func (c Config) Layers() []Layer {
	out := make([]Layer, c.NumHiddenLayers)
	for i := range out {
		out[i] = c.Layer(i)
	}
	return out
}

// Ops are the operations of a pass on values T of N tokens. The four passes (the graph of
// training, the graph that decodes, the CPU's own decoding and the loop on a device) differ
// in their values, attention and order of sums. The structure of a layer is the same: see
// QKV and FeedForward.
type Ops[T any] interface {
	// Norm is x / rms(x) * weight for x [N, D].
	Norm(weight string, x T) T
	// HeadNorm is Norm for each head of x [N, heads, E].
	HeadNorm(weight string, x T) T
	// Rotate turns the heads of x [N, heads, E] by the positions of the tokens.
	Rotate(x T) T
	// ProjectQKV multiplies x [N, D] by Q, K and V, adds their biases and splits the heads:
	// [N, H, E], [N, K, E] twice.
	ProjectQKV(l *Layer, x T) (q, k, v T)
	// GateUp multiplies x [N, D] by Gate and Up and adds their biases: [N, F] each.
	GateUp(l *Layer, x T) (gate, up T)
	// Gated is gate * sigmoid(gate) * up.
	Gated(gate, up T) T
	// Linear multiplies x [N, in] and adds the bias: [N, out].
	Linear(l Linear, x T) T
}

// QKV is the first half of a layer up to attention: the queries [N, H, E], keys and values
// [N, K, E] of the residual stream x [N, D].
func QKV[T any](o Ops[T], l *Layer, x T) (q, k, v T) {
	q, k, v = o.ProjectQKV(l, o.Norm(l.AttnNorm, x))
	turn := func(norm string, x T) T {
		if norm != "" {
			x = o.HeadNorm(norm, x)
		}
		if l.Rotates {
			x = o.Rotate(x)
		}
		return x
	}
	return turn(l.QNorm, q), turn(l.KNorm, k), v
}

// FeedForward returns the sum that the second half of a layer adds to the residual stream x
// [N, D].
func FeedForward[T any](o Ops[T], l *Layer, x T) T {
	gate, up := o.GateUp(l, o.Norm(l.MLPNorm, x))
	return o.Linear(l.Down, o.Gated(gate, up))
}
