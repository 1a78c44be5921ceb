package model

import (
	"fmt"
	"math"
)

// TensorSpec names one weight as Hugging Face checkpoints do.
type TensorSpec struct {
	Name  string
	Shape []int
	// Std is the standard deviation of the initial normal values; 0 means all ones, or
	// all zeros with Zeros.
	Std   float64
	Zeros bool
}

// Size returns the number of scalars.
func (t TensorSpec) Size() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Names of the weights outside and inside a layer.
const (
	nameEmbed    = "model.embed_tokens.weight"
	nameNorm     = "model.norm.weight"
	nameHead     = "lm_head.weight"
	nameAttnNorm = "input_layernorm.weight"
	nameQ        = "self_attn.q_proj.weight"
	nameK        = "self_attn.k_proj.weight"
	nameV        = "self_attn.v_proj.weight"
	nameO        = "self_attn.o_proj.weight"
	nameQNorm    = "self_attn.q_norm.weight"
	nameKNorm    = "self_attn.k_norm.weight"
	nameMLPNorm  = "post_attention_layernorm.weight"
	nameGate     = "mlp.gate_proj.weight"
	nameUp       = "mlp.up_proj.weight"
	nameDown     = "mlp.down_proj.weight"
)

// layerName is the full name of a weight of layer i.
func layerName(i int, name string) string { return fmt.Sprintf("model.layers.%d.%s", i, name) }

// Tensors lists every weight of the network in a fixed order, adapters last. A tied head has
// no tensor of its own. Projections back into the residual stream start
// smaller by sqrt(2*layers), so that the stream's variance does not grow with
// depth (GPT-2 report, section 2.3).
func (c Config) Tensors() []TensorSpec {
	std := c.InitializerRange
	residual := std / math.Sqrt(2*float64(c.NumHiddenLayers))
	d, f := c.HiddenSize, c.IntermediateSize
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	weight := func(name string, std float64, shape ...int) TensorSpec {
		return TensorSpec{Name: name, Shape: shape, Std: std}
	}
	specs := []TensorSpec{weight(nameEmbed, std, c.VocabSize, d)}
	for i := range c.NumHiddenLayers {
		specs = append(specs,
			weight(layerName(i, nameAttnNorm), 0, d),
			weight(layerName(i, nameQ), std, q, d),
			weight(layerName(i, nameK), std, kv, d),
			weight(layerName(i, nameV), std, kv, d),
			weight(layerName(i, nameO), residual, d, q),
			weight(layerName(i, nameQNorm), 0, c.HeadDim),
			weight(layerName(i, nameKNorm), 0, c.HeadDim),
			weight(layerName(i, nameMLPNorm), 0, d),
			weight(layerName(i, nameGate), std, f, d),
			weight(layerName(i, nameUp), std, f, d),
			weight(layerName(i, nameDown), residual, d, f),
		)
	}
	specs = append(specs, weight(nameNorm, 0, d))
	if !c.TieWordEmbeddings {
		specs = append(specs, weight(nameHead, std, c.VocabSize, d))
	}
	return append(specs, c.Adapters()...)
}
