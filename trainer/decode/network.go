//go:build goexperiment.simd && amd64

package decode

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"temper/trainer/kernels"
	"temper/trainer/qwen3"
)

// Network holds weights in the layout of the products. It is never changed, so several
// passes may share it.
type Network struct {
	cfg    qwen3.Config
	panel  int
	embed  []float32 // [vocabulary, D]
	layers []layer
	norm   []float32
	head   matrix
}

// layer holds the weights of one layer.
type layer struct {
	attnNorm, qNorm, kNorm, mlpNorm []float32
	qkv, o, gateUp, down            matrix
}

// Check says why a network cannot be decoded here with a choice of kernels.
func Check(cfg qwen3.Config, c kernels.Choice) error {
	k := kernels.Describe(c)
	var errs []error
	if k.Variant != kernels.AVX512 || k.Elementwise != "simd" {
		errs = append(errs, fmt.Errorf("%s kernels, want %s", k.Variant, kernels.AVX512))
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"hidden_size", cfg.HiddenSize}, {"head_dim", cfg.HeadDim}, {"intermediate_size", cfg.IntermediateSize}} {
		if f.value%lanes != 0 {
			errs = append(errs, fmt.Errorf("%s %d is no multiple of %d", f.name, f.value, lanes))
		}
	}
	return errors.Join(errs...)
}

// NewNetwork packs a copy of the weights, of which it reports all that are missing or have
// another shape.
func NewNetwork(cfg qwen3.Config, c kernels.Choice, lookup func(name string) (qwen3.Tensor, bool)) (*Network, error) {
	if err := errors.Join(Check(cfg, c), cfg.CheckTensors(lookup)); err != nil {
		return nil, err
	}
	data := func(name string) []float32 {
		t, _ := lookup(name)        // checked above
		return slices.Clone(t.Data) // the caller may go on training
	}
	n := &Network{cfg: cfg, panel: kernels.Describe(c).PanelDepth, embed: data("model.embed_tokens.weight"), norm: data("model.norm.weight")}
	d := cfg.HiddenSize
	for i := range cfg.NumHiddenLayers {
		of := func(part string) []float32 { return data(fmt.Sprintf("model.layers.%d.%s.weight", i, part)) }
		n.layers = append(n.layers, layer{
			attnNorm: of("input_layernorm"), qNorm: of("self_attn.q_norm"), kNorm: of("self_attn.k_norm"), mlpNorm: of("post_attention_layernorm"),
			qkv:    newMatrix(d, (cfg.NumAttentionHeads+2*cfg.NumKeyValueHeads)*cfg.HeadDim, of("self_attn.q_proj"), of("self_attn.k_proj"), of("self_attn.v_proj")),
			o:      newMatrix(cfg.NumAttentionHeads*cfg.HeadDim, d, of("self_attn.o_proj")),
			gateUp: newMatrix(d, 2*cfg.IntermediateSize, of("mlp.gate_proj"), of("mlp.up_proj")),
			down:   newMatrix(cfg.IntermediateSize, d, of("mlp.down_proj")),
		})
	}
	head := n.embed
	if !cfg.TieWordEmbeddings {
		head = data("lm_head.weight")
	}
	n.head = newMatrix(d, cfg.PaddedVocab(), head)
	return n, nil
}

// rope are the cosines and sines of positions: [length, E/2] each.
func rope(cfg qwen3.Config, length int) (cos, sin []float32) {
	half := cfg.HeadDim / 2
	for p := range length {
		for i := range half {
			angle := float64(p) * math.Pow(cfg.RopeTheta, -float64(2*i)/float64(cfg.HeadDim))
			cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
		}
	}
	return cos, sin
}
