//go:build goexperiment.simd && amd64

package decode

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"temper/trainer/cpu/kernels"
	"temper/trainer/qwen3"
	"temper/trainer/weights/tensor"
)

// Network holds weights for the products: packed, or where they lie. It is never changed,
// so several passes share it.
type Network struct {
	vectors *arithmetic
	cfg     qwen3.Config
	panel   int
	place   bool
	embed   tensor.Stored // [vocabulary, D]
	layers  []layer
	norm    []float32
	head    matrix
}

// layer holds the weights of one layer.
type layer struct {
	attnNorm, qNorm, kNorm, mlpNorm []float32
	qkv, o, gateUp, down            matrix
}

// Check says why a network cannot be decoded here with a choice of kernels.
func Check(cfg qwen3.Config, c kernels.Choice) error {
	_, err := arithmeticOf(c)
	errs := []error{err}
	for _, f := range []struct {
		name  string
		value int
	}{{"hidden_size", cfg.HiddenSize}, {"head_dim", cfg.HeadDim}, {"intermediate_size", cfg.IntermediateSize}} {
		if f.value%width != 0 {
			errs = append(errs, fmt.Errorf("%s %d is no multiple of %d", f.name, f.value, width))
		}
	}
	return errors.Join(errs...)
}

// packedBytes bounds the weights that are packed, in float32. Below it a pass is short, and
// to make the tiles of all weights anew would be a large part of it. Above it the weights
// come from memory, which takes longer than that, and two copies would be too many.
const packedBytes = 256 << 20

// LayoutOf is the layout for a network.
func LayoutOf(cfg qwen3.Config) Layout {
	if 4*cfg.NumParameters() > packedBytes {
		return InPlace
	}
	return Packed
}

// NewNetwork makes a network of weights, of which it reports all that are missing or have
// another shape.
func NewNetwork(cfg qwen3.Config, c kernels.Choice, layout Layout, lookup tensor.Lookup) (*Network, error) {
	if err := errors.Join(Check(cfg, c), cfg.CheckStored(lookup)); err != nil {
		return nil, err
	}
	vectors, err := arithmeticOf(c)
	if err != nil {
		return nil, err
	}
	find := func(name string) tensor.Stored {
		t, _ := lookup(name) // checked above
		return t
	}
	vector := func(name string) []float32 { return slices.Clone(find(name).Values()) }
	inPlace := layout == InPlace
	n := &Network{vectors: vectors, cfg: cfg, panel: kernels.Describe(c).PanelDepth, place: inPlace, embed: find("model.embed_tokens.weight"), norm: vector("model.norm.weight")}
	d := cfg.HiddenSize
	for i := range cfg.NumHiddenLayers {
		name := func(part string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, part) }
		of := func(depth, columns int, parts ...string) matrix {
			var stored []tensor.Stored
			for _, p := range parts {
				stored = append(stored, find(name(p)))
			}
			return newMatrix(vectors, depth, columns, inPlace, stored...)
		}
		n.layers = append(n.layers, layer{
			attnNorm: vector(name("input_layernorm")), qNorm: vector(name("self_attn.q_norm")), kNorm: vector(name("self_attn.k_norm")),
			mlpNorm: vector(name("post_attention_layernorm")),
			qkv:     of(d, (cfg.NumAttentionHeads+2*cfg.NumKeyValueHeads)*cfg.HeadDim, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
			o:       of(cfg.NumAttentionHeads*cfg.HeadDim, d, "self_attn.o_proj"),
			gateUp:  of(d, 2*cfg.IntermediateSize, "mlp.gate_proj", "mlp.up_proj"),
			down:    of(cfg.IntermediateSize, d, "mlp.down_proj"),
		})
	}
	head := n.embed
	if !cfg.TieWordEmbeddings {
		head = find("lm_head.weight")
	}
	n.head = newMatrix(vectors, d, cfg.PaddedVocab(), inPlace, head)
	if !inPlace {
		n.embed = tensor.Stored{Name: n.embed.Name, Shape: n.embed.Shape, Float32: slices.Clone(n.embed.Values())}
	}
	return n, nil
}

// InPlace reports whether the network reads the weights where they lie. They must then stay
// as they are while a pass uses it.
func (n *Network) InPlace() bool { return n.place }

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
