package gguf

import (
	"fmt"
	"slices"
	"strings"

	"temper/trainer/qwen3"
	"temper/trainer/weights/safetensors"
)

// tensorKind is a type of tensors under the format's code.
type tensorKind struct {
	dtype safetensors.DType
	code  uint32
	// file is the code of a file whose matrices have this type (general.file_type).
	file uint32
}

func kindOf(d safetensors.DType) (tensorKind, error) {
	for _, k := range []tensorKind{{safetensors.F32, 0, 0}, {safetensors.F16, 1, 1}, {safetensors.BF16, 30, 32}} {
		if k.dtype == d {
			return k, nil
		}
	}
	return tensorKind{}, fmt.Errorf("dtype %q, want F32, F16 or BF16", d)
}

// renamed maps the last parts of a checkpoint's tensor names to llama.cpp's.
var renamed = map[string]string{
	"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

// nameOf is llama.cpp's name of a tensor.
func nameOf(source string) (string, error) {
	stem, block := strings.TrimSuffix(source, ".weight"), ""
	if rest, ok := strings.CutPrefix(stem, "model.layers."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		stem, block = part, "blk."+layer+"."
	}
	name, ok := renamed[stem]
	if !ok {
		return "", fmt.Errorf("tensor %s has no name in llama.cpp", source)
	}
	return block + name + ".weight", nil
}

// entriesOf places the tensors of a network. Vectors stay in float32, as llama.cpp
// wants them; there a tied head is no tensor either.
func entriesOf(model qwen3.Config, matrices tensorKind) ([]entry, error) {
	var out []entry
	vectors, err := kindOf(safetensors.F32)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	for _, spec := range model.Tensors() {
		name, err := nameOf(spec.Name)
		if err != nil {
			return nil, err
		}
		kind := matrices
		if len(spec.Shape) == 1 {
			kind = vectors
		}
		out = append(out, entry{source: spec.Name, name: name, shape: slices.Clone(spec.Shape), kind: kind, offset: at})
		size := int64(spec.Size()) * kind.dtype.Size()
		at += size + padding(size)
	}
	return out, nil
}
