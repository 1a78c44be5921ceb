package ondevice

import (
	"fmt"
	"math"

	"temper/trainer/qwen3"
	"temper/trainer/weights/tensor"
)

// Names of the weights as programs take them. Products over the same input are one.
const (
	nameEmbed    = "model.embed_tokens.weight"
	nameNorm     = "model.norm.weight"
	nameHead     = "lm_head.weight"
	nameRope     = "rope"
	nameAttnNorm = "input_layernorm.weight"
	nameQNorm    = "self_attn.q_norm.weight"
	nameKNorm    = "self_attn.k_norm.weight"
	nameO        = "self_attn.o_proj.weight"
	nameMLPNorm  = "post_attention_layernorm.weight"
	nameDown     = "mlp.down_proj.weight"
	nameQKV      = "qkv"
	nameGateUp   = "gate_up"
)

// partsOf are the weights of a layer that a fused one consists of.
var partsOf = map[string][]string{
	nameQKV:    {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
	nameGateUp: {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
	nameO:      {nameO}, nameDown: {nameDown},
}

func layerName(i int, name string) string { return fmt.Sprintf("model.layers.%d.%s", i, name) }

// weight is a weight of the programs: its shape, and how to make it from a policy.
type weight struct {
	name string
	dims []int
	make func(find tensor.Lookup) []float32
}

// weightsOf lists the weights in the order in which programs take them. Matrices are
// [in, out].
func weightsOf(cfg qwen3.Config, positions int) []weight {
	d, f, e := cfg.HiddenSize, cfg.IntermediateSize, cfg.HeadDim
	q, kv := cfg.NumAttentionHeads*e, cfg.NumKeyValueHeads*e
	plain := func(name string, dims ...int) weight {
		return weight{name, dims, func(find tensor.Lookup) []float32 { return floats(find, name) }}
	}
	turned := func(name string, in, out int, from ...string) weight {
		return weight{name, []int{in, out}, func(find tensor.Lookup) []float32 { return transposed(find, from, out) }}
	}
	matrix := func(i int, name string, in, out int) weight {
		var from []string
		for _, part := range partsOf[name] {
			from = append(from, layerName(i, part))
		}
		return turned(layerName(i, name), in, out, from...)
	}
	all := []weight{plain(nameEmbed, cfg.VocabSize, d)}
	for i := range cfg.NumHiddenLayers {
		all = append(all,
			plain(layerName(i, nameAttnNorm), d), matrix(i, nameQKV, d, q+2*kv), plain(layerName(i, nameQNorm), e), plain(layerName(i, nameKNorm), e),
			matrix(i, nameO, q, d), plain(layerName(i, nameMLPNorm), d), matrix(i, nameGateUp, d, 2*f), matrix(i, nameDown, f, d))
	}
	head := nameHead
	if cfg.TieWordEmbeddings {
		head = nameEmbed
	}
	return append(all, plain(nameNorm, d), turned(nameHead, d, cfg.VocabSize, head), weight{nameRope, []int{positions, e}, func(tensor.Lookup) []float32 { return ropeTable(cfg, positions) }})
}

// floats are the values of a weight.
func floats(find tensor.Lookup, name string) []float32 {
	t, _ := find(name) // the caller has checked that all are there
	return t.Named().Data
}

// transposed puts weights [out_i, in] side by side, as [in, out].
func transposed(find tensor.Lookup, names []string, out int) []float32 {
	const tile = 32 // rows and columns that fit into the first-level cache
	var data []float32
	column := 0
	for _, name := range names {
		t, _ := find(name)
		named := t.Named()
		rows, in := named.Shape[0], named.Shape[1]
		if data == nil {
			data = make([]float32, in*out)
		}
		for r := 0; r < rows; r += tile {
			for c := 0; c < in; c += tile {
				for o := r; o < min(r+tile, rows); o++ {
					for i := c; i < min(c+tile, in); i++ {
						data[i*out+column+o] = named.Data[o*in+i]
					}
				}
			}
		}
		column += rows
	}
	return data
}

// ropeTable has the cosines and then the sines of each position, made in double precision.
func ropeTable(cfg qwen3.Config, positions int) []float32 {
	e := cfg.HeadDim
	table := make([]float32, positions*e)
	for p := range positions {
		for i := range e / 2 {
			angle := float64(p) * math.Pow(cfg.RopeTheta, -float64(2*i)/float64(e))
			table[p*e+i], table[p*e+e/2+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return table
}
