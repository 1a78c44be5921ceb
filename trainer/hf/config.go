package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"temper/trainer/model"
)

// Config is what a config.json says.
type Config struct {
	model.Config
	// DType is how the file names the type of the weights, "" when it does not.
	DType string
	// Notes are facts that a person should know and that change no result:
	// defaults for absent fields, fields that this program does not know.
	Notes []string
}

// neutral lists the fields that the logits do not depend on.
func neutral() []string {
	return []string{
		"_name_or_path", "_attn_implementation", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label",
		"initializer_range", "is_encoder_decoder", "label2id", "max_length", "max_window_layers", "output_attentions",
		"output_hidden_states", "pad_token_id", "problem_type", "return_dict", "tokenizer_class", "torch_dtype",
		"transformers_version", "unsloth_version", "use_cache",
	}
}

// ParseConfig reads a config.json. It reports everything that it cannot
// represent at once: another architecture, activation or attention, rotary
// scaling, experts, quantisation. Absent fields have the defaults of
// transformers' Qwen3Config.
func ParseConfig(data []byte) (Config, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return Config{}, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	if fields == nil {
		return Config{}, fmt.Errorf("%s: null, want an object", ConfigFile)
	}
	p := &configParser{fields: fields, used: map[string]bool{}}
	p.architecture()
	p.dimensions()
	p.attention()
	p.rope()
	p.leftovers()
	if len(p.errs) == 0 {
		if err := p.out.Validate(); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	if err := errors.Join(p.errs...); err != nil {
		return Config{}, named(ConfigFile, err)
	}
	return p.out, nil
}

// configParser takes the fields one by one and remembers which it took.
type configParser struct {
	fields map[string]json.RawMessage
	used   map[string]bool
	out    Config
	errs   []error
}

func (p *configParser) bad(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// get decodes a field into v and reports whether it is there and not null.
func (p *configParser) get(key string, v any) bool {
	p.used[key] = true
	raw, ok := p.fields[key]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		p.bad("%s: %s, want %s", key, shorten(raw), kindOf(v))
	}
	return true
}

// withDefault decodes a field into v, which holds its default, and notes when it
// is absent.
func (p *configParser) withDefault(key string, v any) {
	if !p.get(key, v) {
		value, err := json.Marshal(v)
		if err != nil {
			p.bad("%s: %w", key, err)
		}
		p.out.Notes = append(p.out.Notes, fmt.Sprintf("%s is absent: %s, the default", key, value))
	}
}

func (p *configParser) architecture() {
	var names []string
	kind, quantised := "", json.RawMessage(nil)
	if p.get("architectures", &names) && !slices.Equal(names, []string{"Qwen3ForCausalLM"}) {
		p.bad("architectures: %v, want [Qwen3ForCausalLM]", names)
	}
	if !p.get("model_type", &kind) || kind != "qwen3" {
		p.bad("model_type: %q, want \"qwen3\"", kind)
	}
	for _, key := range []string{"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"} {
		n := 0
		if p.get(key, &n) && n != 0 {
			p.bad("%s: %d, a mixture of experts is not supported", key, n)
		}
	}
	if p.get("quantization_config", &quantised) {
		p.bad("quantization_config: quantised weights are not supported")
	}
	if !p.get("dtype", &p.out.DType) {
		p.get("torch_dtype", &p.out.DType)
	}
	act := "silu"
	if p.get("hidden_act", &act) && act != "silu" {
		p.bad("hidden_act: %q, want \"silu\"", act)
	}
}

func (p *configParser) dimensions() {
	c := &p.out.Config
	for _, field := range []struct {
		key string
		v   *int
	}{
		{"vocab_size", &c.VocabSize}, {"hidden_size", &c.HiddenSize}, {"intermediate_size", &c.IntermediateSize},
		{"num_hidden_layers", &c.NumHiddenLayers}, {"num_attention_heads", &c.NumAttentionHeads},
	} {
		if !p.get(field.key, field.v) {
			p.bad("%s: missing", field.key)
		}
	}
	c.NumKeyValueHeads, c.HeadDim, c.MaxPositionEmbeddings, c.RMSNormEps, c.InitializerRange = 32, 128, 32768, 1e-6, 0.02
	p.withDefault("num_key_value_heads", &c.NumKeyValueHeads)
	p.withDefault("head_dim", &c.HeadDim)
	p.withDefault("max_position_embeddings", &c.MaxPositionEmbeddings)
	p.withDefault("rms_norm_eps", &c.RMSNormEps)
	p.withDefault("tie_word_embeddings", &c.TieWordEmbeddings)
	p.get("initializer_range", &c.InitializerRange)
}

func (p *configParser) attention() {
	bias, sliding, dropout := false, false, 0.0
	if p.get("attention_bias", &bias) && bias {
		p.bad("attention_bias: true, want false")
	}
	if p.get("use_sliding_window", &sliding) && sliding {
		p.bad("use_sliding_window: true, want false")
	}
	p.used["sliding_window"] = true // without effect when use_sliding_window is off
	if p.get("attention_dropout", &dropout) && dropout != 0 {
		p.bad("attention_dropout: %v, want 0", dropout)
	}
	var layers []string
	if p.get("layer_types", &layers) {
		if len(layers) != p.out.NumHiddenLayers {
			p.bad("layer_types: %d layers, num_hidden_layers is %d", len(layers), p.out.NumHiddenLayers)
		}
		if i := slices.IndexFunc(layers, func(s string) bool { return s != "full_attention" }); i >= 0 {
			p.bad("layer_types[%d]: %q, want \"full_attention\"", i, layers[i])
		}
	}
}

// rope reads rope_theta and rope_scaling, or the rope_parameters that newer
// versions of transformers write in their place.
func (p *configParser) rope() {
	theta := p.get("rope_theta", &p.out.RopeTheta)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		var rope struct {
			Type    string   `json:"rope_type"`
			OldType string   `json:"type"`
			Theta   *float64 `json:"rope_theta"`
			Partial *float64 `json:"partial_rotary_factor"`
		}
		if !p.get(key, &rope) {
			continue
		}
		if rope.Type == "" {
			rope.Type = rope.OldType
		}
		if rope.Type != "default" {
			p.bad("%s: type %q is not supported, want \"default\" or null", key, rope.Type)
		}
		if rope.Partial != nil && *rope.Partial != 1 {
			p.bad("%s: partial_rotary_factor %v, want 1", key, *rope.Partial)
		}
		switch {
		case rope.Theta == nil:
		case theta && *rope.Theta != p.out.RopeTheta:
			p.bad("%s: rope_theta %v, elsewhere it is %v", key, *rope.Theta, p.out.RopeTheta)
		default:
			p.out.RopeTheta, theta = *rope.Theta, true
		}
	}
	if partial := 1.0; p.get("partial_rotary_factor", &partial) && partial != 1 {
		p.bad("partial_rotary_factor: %v, want 1", partial)
	}
	if !theta {
		p.out.RopeTheta = 1e4
		p.out.Notes = append(p.out.Notes, "rope_theta is absent: 10000, the default")
	}
}

// leftovers notes the fields that nobody asked for.
func (p *configParser) leftovers() {
	for _, key := range neutral() {
		p.used[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(p.fields)) {
		if !p.used[key] {
			p.out.Notes = append(p.out.Notes, fmt.Sprintf("%s: %s is unknown here, and kept", key, shorten(p.fields[key])))
		}
	}
}

func shorten(raw json.RawMessage) string {
	const limit = 60
	if len(raw) > limit {
		return string(raw[:limit]) + "..."
	}
	return string(raw)
}

// kindOf names what a field of the type of v holds.
func kindOf(v any) string {
	switch v.(type) {
	case *int:
		return "an integer"
	case *float64:
		return "a number"
	case *bool:
		return "true or false"
	case *string:
		return "a string"
	case *[]string:
		return "a list of strings"
	default:
		return "an object"
	}
}

// EncodeConfig returns the config.json of a network whose weights have the
// type, in torch's words: float32, bfloat16 or float16.
func EncodeConfig(network model.Config, dtype string) ([]byte, error) {
	data, err := json.MarshalIndent(struct {
		Architectures    []string `json:"architectures"`
		ModelType        string   `json:"model_type"`
		HiddenAct        string   `json:"hidden_act"`
		AttentionBias    bool     `json:"attention_bias"`
		AttentionDropout float64  `json:"attention_dropout"`
		TorchDType       string   `json:"torch_dtype"`
		UseCache         bool     `json:"use_cache"`
		model.Config
	}{
		Architectures: []string{"Qwen3ForCausalLM"}, ModelType: "qwen3", HiddenAct: "silu", TorchDType: dtype, UseCache: true,
		Config: network,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ConfigFile, err)
	}
	return append(data, '\n'), nil
}
