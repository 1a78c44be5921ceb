package model

import (
	"fmt"
	"math"
	"strings"
)

// TensorSpec names one weight as Hugging Face checkpoints do.
type TensorSpec struct {
	Name  string
	Shape []int
	// Std is the standard deviation of the initial normal values; 0 means all ones, or
	// all zeros with Zeros.
	Std   float64
	Zeros bool
	// Split is how the model axis of a mesh divides the tensor.
	Split MeshSplit
}

// MeshSplit is how tensors are divided among the devices that share a layer.
type MeshSplit int

// A tensor is whole on every device, or divided along its outputs or its inputs
// (Megatron-LM, arXiv 1909.08053, section 3).
const (
	SplitNone MeshSplit = iota
	SplitOut
	SplitIn
)

// Size returns the number of scalars.
func (t TensorSpec) Size() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// IsEmbedding reports whether rows of the tensor are looked up by tokens.
func (t TensorSpec) IsEmbedding() bool { return t.Name == NameEmbed }

// Tensors lists every weight of the network in a fixed order, adapters last. A tied head has
// no tensor. Projections back into the residual stream start smaller by sqrt(2*layers), so
// that the stream's variance does not grow with depth (GPT-2 report, section 2.3).
func (c Config) Tensors() []TensorSpec {
	std := c.InitializerRange
	residual := std / math.Sqrt(2*float64(c.NumHiddenLayers))
	table := func(name string) TensorSpec {
		return TensorSpec{Name: name, Shape: []int{c.VocabSize, c.HiddenSize}, Std: std, Split: SplitOut}
	}
	specs := []TensorSpec{table(NameEmbed)}
	norm := func(name string, size int) {
		if name != "" {
			specs = append(specs, TensorSpec{Name: name, Shape: []int{size}})
		}
	}
	linear := func(linears ...Linear) {
		for _, l := range linears {
			w := TensorSpec{Name: l.Weight, Shape: []int{l.Out, l.In}, Std: std, Split: SplitOut}
			if l.Residual {
				w.Std, w.Split = residual, SplitIn
			}
			if specs = append(specs, w); l.Bias != "" {
				specs = append(specs, TensorSpec{Name: l.Bias, Shape: []int{l.Out}, Zeros: true})
			}
		}
	}
	for _, l := range c.Layers() {
		norm(l.AttnNorm, c.HiddenSize)
		linear(l.Q, l.K, l.V, l.O)
		norm(l.QNorm, c.HeadDim)
		norm(l.KNorm, c.HeadDim)
		norm(l.MLPNorm, c.HiddenSize)
		linear(l.Gate, l.Up, l.Down)
	}
	norm(NameNorm, c.HiddenSize)
	if !c.TieWordEmbeddings {
		specs = append(specs, table(NameHead))
	}
	return append(specs, c.Adapters()...)
}

// ggufNames maps tensor names, without layer and kind, to llama.cpp's.
func ggufNames() map[string]string {
	return map[string]string{
		"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
		"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
		"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
		"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	}
}

// GGUF is the tensor's name in llama.cpp's files.
func (t TensorSpec) GGUF() (string, error) {
	dot := strings.LastIndexByte(t.Name, '.')
	stem, kind, block := t.Name[:max(dot, 0)], t.Name[max(dot, 0):], ""
	if rest, ok := strings.CutPrefix(stem, "model.layers."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		stem, block = part, "blk."+layer+"."
	}
	name, ok := ggufNames()[stem]
	if !ok {
		return "", fmt.Errorf("tensor %s has no name in llama.cpp", t.Name)
	}
	return block + name + kind, nil
}
