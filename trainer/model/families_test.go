package model_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/model"
)

// published are config.json files as their models' repositories have them, without what no
// number depends on, and what they say.
var published = map[string]struct {
	file string
	want model.Config
}{
	"Llama-3.2-1B": {`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
		"intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 16,
		"num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256,
		"rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}}`,
		model.Config{FamilyName: "llama", NoQKNorm: true, VocabSize: 128256, HiddenSize: 2048, IntermediateSize: 8192, NumHiddenLayers: 16,
			NumAttentionHeads: 32, NumKeyValueHeads: 8, HeadDim: 64, MaxPositionEmbeddings: 131072, RopeTheta: 500000, RMSNormEps: 1e-5,
			TieWordEmbeddings: true, InitializerRange: 0.02,
			Rope: model.Rope{Kind: model.RopeLlama3, Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPositions: 8192}}},
	"Qwen2.5-1.5B": {`{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 1536,
		"initializer_range": 0.02, "intermediate_size": 8960, "max_position_embeddings": 131072, "max_window_layers": 28, "num_attention_heads": 12,
		"num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936}`,
		model.Config{FamilyName: "qwen2", NoQKNorm: true, QKVBias: true, VocabSize: 151936, HiddenSize: 1536, IntermediateSize: 8960, NumHiddenLayers: 28,
			NumAttentionHeads: 12, NumKeyValueHeads: 2, HeadDim: 128, MaxPositionEmbeddings: 131072, RopeTheta: 1e6, RMSNormEps: 1e-6,
			TieWordEmbeddings: true, InitializerRange: 0.02}},
	"Mistral-7B-v0.3": {`{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096,
		"initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
		"num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32768}`,
		model.Config{FamilyName: "mistral", NoQKNorm: true, VocabSize: 32768, HiddenSize: 4096, IntermediateSize: 14336, NumHiddenLayers: 32,
			NumAttentionHeads: 32, NumKeyValueHeads: 8, HeadDim: 128, MaxPositionEmbeddings: 32768, RopeTheta: 1e6, RMSNormEps: 1e-5, InitializerRange: 0.02}},
	"SmolLM2-135M": {`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu",
		"hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192,
		"mlp_bias": false, "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
		"rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true, "vocab_size": 49152}`,
		model.Config{FamilyName: "llama", NoQKNorm: true, VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumHiddenLayers: 30,
			NumAttentionHeads: 9, NumKeyValueHeads: 3, HeadDim: 64, MaxPositionEmbeddings: 8192, RopeTheta: 1e5, RMSNormEps: 1e-5,
			TieWordEmbeddings: true, InitializerRange: 0.041666666666666664}},
	"SmolLM3": {`{"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": false, "hidden_size": 64, "intermediate_size": 96,
		"num_attention_heads": 4, "num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "num_key_value_heads": 2, "rope_theta": 5000000.0,
		"use_sliding_window": false, "vocab_size": 256, "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention"]}`,
		model.Config{FamilyName: "smollm3", NoQKNorm: true, NoRopeEvery: 4, VocabSize: 256, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 5,
			NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16, MaxPositionEmbeddings: 32768, RopeTheta: 5e6, RMSNormEps: 1e-6,
			TieWordEmbeddings: true, InitializerRange: 0.02}},
}

// TestPublishedConfigs: each is understood, and comes back from the file that is written.
func TestPublishedConfigs(t *testing.T) {
	for name, p := range published {
		for _, data := range [][]byte{[]byte(p.file), encoded(t, p.want)} {
			got, err := model.ParseConfig(data)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(p.want, got.Config); diff != "" {
				t.Errorf("%s: want (-) got (+):\n%s", name, diff)
			}
		}
	}
	if n := published["SmolLM2-135M"].want.NumParameters(); n != 134515008 {
		t.Errorf("SmolLM2-135M has %d parameters, want 134515008", n)
	}
}

func encoded(t *testing.T, c model.Config) []byte {
	t.Helper()
	data, err := model.EncodeConfig(c, "bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFamiliesRefuse: what a family's config.json says and the passes do not compute.
func TestFamiliesRefuse(t *testing.T) {
	for want, c := range map[string]struct {
		model string
		key   string
		value any
	}{
		"sliding_window: 4096 is not supported yet":            {"Mistral-7B-v0.3", "sliding_window", 4096},
		"attention_bias: true is unknown here":                 {"Mistral-7B-v0.3", "attention_bias", true},
		"no_rope_layers: [1 0 0 1 1], want 0 for every n-th":   {"SmolLM3", "no_rope_layers", []int{1, 0, 0, 1, 1}},
		"rope_theta: missing":                                  {"SmolLM3", "rope_theta", nil},
		"hidden_size: 1537, want a multiple of":                {"Qwen2.5-1.5B", "hidden_size", 1537},
		"low_freq_factor 0 and high_freq_factor 0":             {"Llama-3.2-1B", "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8}},
		`rope_type "linear" does not use beta_fast, beta_slow`: {"Llama-3.2-1B", "rope_scaling", map[string]any{"rope_type": "linear", "factor": 8, "beta_fast": 3}},
	} {
		var fields map[string]any
		if err := json.Unmarshal([]byte(published[c.model].file), &fields); err != nil {
			t.Fatal(err)
		}
		if fields[c.key] = c.value; c.value == nil {
			delete(fields, c.key)
		}
		data, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.ParseConfig(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	absent := strings.Replace(published["Mistral-7B-v0.3"].file, `"sliding_window": null, `, "", 1)
	if _, err := model.ParseConfig([]byte(absent)); err == nil || !strings.Contains(err.Error(), "sliding_window: 4096") {
		t.Errorf("Mistral without sliding_window: error %v, want its default of 4096 in it", err)
	}
}

// TestValidateNamesSwitchesOfOtherFamilies: a configuration that no file of its family says.
func TestValidateNamesSwitchesOfOtherFamilies(t *testing.T) {
	for want, change := range map[string]func(*model.Config){
		"a network of family qwen3 has normalised queries and keys: false, want true":        func(c *model.Config) { c.NoQKNorm = true },
		"a network of family qwen3 has biases of feed-forward parts: true, want false":       func(c *model.Config) { c.MLPBias = true },
		"a network of family qwen3 has all biases of attention or none":                      func(c *model.Config) { c.OBias = true },
		"a network of family qwen3 has no rotation in every layer 4":                         func(c *model.Config) { c.NoRopeEvery = 4 },
		"a network of family qwen3 is the default: leave its name out":                       func(c *model.Config) { c.FamilyName = "qwen3" },
		"a network of family qwen2 has biases of queries, keys and values: false, want true": func(c *model.Config) { c.FamilyName, c.NoQKNorm = "qwen2", true },
		`model_type: "gpt2", want one of`:                                                    func(c *model.Config) { c.FamilyName = "gpt2" },
	} {
		cfg := tiny()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestYarnFactor: the factor of cosines and sines, which position 0 shows.
func TestYarnFactor(t *testing.T) {
	for _, c := range []struct {
		rope model.Rope
		want float64
	}{
		{model.Rope{Factor: 4}, 0.1*math.Log(4) + 1},
		{model.Rope{Factor: 4, AttentionFactor: 1.5}, 1.5},
		{model.Rope{Factor: 4, MScale: 1, MScaleAllDim: 1}, 1},
		{model.Rope{Factor: 40, MScale: 0.707, MScaleAllDim: 1}, (0.0707*math.Log(40) + 1) / (0.1*math.Log(40) + 1)},
		{model.Rope{Factor: 1}, 1},
	} {
		cfg := tiny()
		cfg.Rope = c.rope
		cfg.Rope.Kind = model.RopeYarn
		if cos, _ := cfg.Rotations(1); cos[0] != float32(c.want) {
			t.Errorf("%+v: factor %v, want %v", c.rope, cos[0], c.want)
		}
	}
}
