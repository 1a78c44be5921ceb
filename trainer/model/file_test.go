package model_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/model"
)

// edited returns the committed config.json with other fields; nil removes one.
func edited(t *testing.T, changes map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile("../weights/hf/testdata/tied/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for key, value := range changes {
		fields[key] = value
		if value == nil {
			delete(fields, key)
		}
	}
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return data
}

func tiny() model.Config {
	return model.Config{VocabSize: 64, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 16, MaxPositionEmbeddings: 128, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
}

// TestConfigOfEitherVersion: transformers 5 writes rope_parameters and dtype
// where 4 wrote rope_theta, rope_scaling and torch_dtype.
func TestConfigOfEitherVersion(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"5": {},
		"4": {"rope_parameters": nil, "dtype": nil, "layer_types": nil, "rope_theta": 1000000, "rope_scaling": json.RawMessage("null"), "torch_dtype": "float32"},
	} {
		got, err := model.ParseConfig(edited(t, changes))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(model.FileConfig{Config: tiny(), DType: "float32"}, got); diff != "" {
			t.Errorf("version %s: want (-) got (+):\n%s", name, diff)
		}
	}
}

func TestConfigComesBack(t *testing.T) {
	data, err := model.EncodeConfig(tiny(), "bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(model.FileConfig{Config: tiny(), DType: "bfloat16"}, got); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
}

func TestConfigNotes(t *testing.T) {
	got, err := model.ParseConfig(edited(t, map[string]any{"head_dim": nil, "rope_parameters": nil, "flux": map[string]any{}, "rms_norm_eps": nil}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"head_dim is absent: 128, the default", "rms_norm_eps is absent: 0.000001, the default",
		"rope_theta is absent: 10000, the default", `flux: {} is unknown here, and kept`}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
	if got.HeadDim != 128 || got.RopeTheta != 1e4 {
		t.Errorf("head_dim %d, rope_theta %v", got.HeadDim, got.RopeTheta)
	}
}

func TestConfigRefuses(t *testing.T) {
	const others = "want default, linear, dynamic, llama3, yarn or null"
	for want, changes := range map[string]map[string]any{
		`architectures: [Qwen3MoeForCausalLM], want [Qwen3ForCausalLM]`:              {"architectures": []string{"Qwen3MoeForCausalLM"}},
		`model_type: "qwen3_moe", want one of qwen3, qwen2, llama, mistral, smollm3`: {"model_type": "qwen3_moe"},
		`model_type: missing`: {"model_type": nil},
		`num_experts: 128, a mixture of experts is not supported yet`: {"num_experts": 128},
		`quantization_config: quantised weights are not supported`:    {"quantization_config": map[string]any{"bits": 4}},
		`hidden_act: "gelu", want "silu"`:                             {"hidden_act": "gelu"},
		`attention_dropout: 0.1, want 0`:                              {"attention_dropout": 0.1},
		`sliding_window: 16 is not supported yet, want null or at least max_position_embeddings 128`: {
			"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1, "layer_types": nil},
		`layer_types[1]: "sliding_attention", want "full_attention"`:                                          {"layer_types": []string{"full_attention", "sliding_attention"}},
		`layer_types: 1 layers, num_hidden_layers is 2`:                                                       {"layer_types": []string{"full_attention"}},
		`rope_parameters: type "longrope" is not supported, ` + others:                                        {"rope_parameters": map[string]any{"rope_type": "longrope"}},
		`rope_scaling: type "su" is not supported, ` + others:                                                 {"rope_scaling": map[string]any{"type": "su", "factor": 2}},
		`rope_parameters: unknown field "full_attention"`:                                                     {"rope_parameters": map[string]any{"full_attention": map[string]any{}}},
		`rope_scaling: truncate false is not supported, want true`:                                            {"rope_scaling": map[string]any{"type": "yarn", "factor": 2, "truncate": false}},
		`rope_parameters: factor 0.5, want at least 1`:                                                        {"rope_parameters": map[string]any{"rope_type": "linear", "factor": 0.5}},
		`rope_scaling: rope_theta 10, elsewhere it is 10000`:                                                  {"rope_theta": 10000, "rope_parameters": nil, "rope_scaling": map[string]any{"type": "default", "rope_theta": 10}},
		`rope_parameters: partial_rotary_factor 0.5, want 1`:                                                  {"rope_parameters": map[string]any{"rope_type": "default", "partial_rotary_factor": 0.5}},
		`final_logit_softcapping: 30 is unknown here: remove it if the network's numbers do not depend on it`: {"final_logit_softcapping": 30},
		`mlp_bias: true is unknown here: remove it if the network's numbers do not depend on it`:              {"mlp_bias": true},
		`vocab_size: missing`:               {"vocab_size": nil},
		`hidden_size: "x", want an integer`: {"hidden_size": "x"},
		`head_dim: 15, want an even number`: {"head_dim": 15},
	} {
		_, err := model.ParseConfig(edited(t, changes))
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err := model.ParseConfig(edited(t, map[string]any{"rope_scaling": map[string]any{"type": "su"}, "num_experts": 8, "hidden_act": "relu"}))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("error %v, want three lines", err)
	}
	for _, data := range []string{"", "null", "[]", "{", strings.Repeat("[", 1<<20)} {
		if _, err := model.ParseConfig([]byte(data)); err == nil {
			t.Errorf("%.10q is accepted", data)
		}
	}
}
