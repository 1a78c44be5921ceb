package qwen3

import (
	"fmt"
	"math"
)

// TensorSpec names one weight as Hugging Face checkpoints do.
type TensorSpec struct {
	Name  string
	Shape []int
	// Std is the standard deviation of the initial normal values; 0 means all ones.
	Std float64
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

// Tensors lists every weight of the network in a fixed order. A tied head has
// no tensor of its own. Projections back into the residual stream start
// smaller by sqrt(2*layers), so that the stream's variance does not grow with
// depth (GPT-2 report, section 2.3).
func (c Config) Tensors() []TensorSpec {
	std := c.InitializerRange
	residual := std / math.Sqrt(2*float64(c.NumHiddenLayers))
	d, f := c.HiddenSize, c.IntermediateSize
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	specs := []TensorSpec{{nameEmbed, []int{c.VocabSize, d}, std}}
	for i := range c.NumHiddenLayers {
		specs = append(specs,
			TensorSpec{layerName(i, nameAttnNorm), []int{d}, 0},
			TensorSpec{layerName(i, nameQ), []int{q, d}, std},
			TensorSpec{layerName(i, nameK), []int{kv, d}, std},
			TensorSpec{layerName(i, nameV), []int{kv, d}, std},
			TensorSpec{layerName(i, nameO), []int{d, q}, residual},
			TensorSpec{layerName(i, nameQNorm), []int{c.HeadDim}, 0},
			TensorSpec{layerName(i, nameKNorm), []int{c.HeadDim}, 0},
			TensorSpec{layerName(i, nameMLPNorm), []int{d}, 0},
			TensorSpec{layerName(i, nameGate), []int{f, d}, std},
			TensorSpec{layerName(i, nameUp), []int{f, d}, std},
			TensorSpec{layerName(i, nameDown), []int{d, f}, residual},
		)
	}
	specs = append(specs, TensorSpec{nameNorm, []int{d}, 0})
	if !c.TieWordEmbeddings {
		specs = append(specs, TensorSpec{nameHead, []int{c.VocabSize, d}, std})
	}
	return specs
}
