package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FileConfig is the content of a Hugging Face config.json.
type FileConfig struct {
	Config
	// DType is how the file names the type of the weights, "" when it does not.
	DType string
	// Notes are facts that a person should know and that change no result:
	// defaults for absent fields, fields that are unknown and switched off.
	Notes []string
}

// neutral lists the fields that the logits do not depend on. So do all that begin with an
// underscore.
func neutral() []string {
	return []string{
		"auto_map", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id", "finetuning_task", "id2label", "initializer_range",
		"is_encoder_decoder", "is_llama_config", "keys_to_ignore_at_inference", "label2id", "max_length", "max_window_layers", "model_max_length",
		"output_attentions", "output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp", "problem_type", "return_dict",
		"router_aux_loss_coef", "task_specific_params", "tokenizer_class", "torch_dtype", "transformers.js_config", "transformers_version",
		"unsloth_fixed", "unsloth_version", "use_cache",
	}
}

// ParseConfig reads a config.json. The error has a line for everything that this program
// does not compute: another architecture, activation or attention, experts, quantisation,
// and every field that it does not know, unless its value switches it off. Absent fields
// have the defaults of the family's class in transformers.
func ParseConfig(data []byte) (FileConfig, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return FileConfig{}, err
	}
	if fields == nil {
		return FileConfig{}, errors.New("null, want an object")
	}
	p := &configParser{fields: fields, used: map[string]bool{}}
	if p.architecture(); p.family.ModelType == "" {
		return FileConfig{}, errors.Join(p.errs...)
	}
	p.dimensions()
	p.attention()
	p.rope()
	p.leftovers()
	if len(p.errs) == 0 {
		return p.out, p.out.Validate()
	}
	return FileConfig{}, errors.Join(append(p.errs, p.out.unsupported()...)...)
}

// configParser takes the fields one by one and remembers which it took.
type configParser struct {
	fields map[string]json.RawMessage
	used   map[string]bool
	family Family
	out    FileConfig
	errs   []error
}

func (p *configParser) bad(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

func (p *configParser) note(format string, args ...any) {
	p.out.Notes = append(p.out.Notes, fmt.Sprintf(format, args...))
}

// get decodes a field into v and reports whether it exists and is not null.
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
		p.note("%s is absent: %s, the default", key, value)
	}
}

func (p *configParser) architecture() {
	var names []string
	kind := ""
	if !p.get("model_type", &kind) {
		p.bad("model_type: missing")
		return
	}
	var err error
	if p.family, err = familyOf(kind); err != nil {
		p.errs = append(p.errs, err)
		return
	}
	p.out.FamilyName, p.out.NoQKNorm = p.family.configName(), p.family.noQKNorm
	if p.get("architectures", &names) && !slices.Equal(names, []string{p.family.Class}) {
		p.bad("architectures: %v, want [%s]", names, p.family.Class)
	}
	x := &p.out.Experts
	for key, v := range map[string]any{
		"num_experts": &x.Num, "num_local_experts": &x.Num, "num_experts_per_tok": &x.TopK, "moe_intermediate_size": &x.Width,
		"decoder_sparse_step": &x.Every, "norm_topk_prob": &x.NormTopK,
	} {
		p.get(key, v)
	}
	if x.Num == 0 {
		*x = Experts{}
	}
	quantised := json.RawMessage(nil)
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
	c, f := &p.out.Config, p.family
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
	c.NumKeyValueHeads, c.HeadDim, c.MaxPositionEmbeddings, c.RMSNormEps, c.InitializerRange = f.kvHeads, f.headDim, f.positions, 1e-6, 0.02
	c.TieWordEmbeddings = f.tied
	if c.NumKeyValueHeads == 0 {
		c.NumKeyValueHeads = c.NumAttentionHeads
	}
	p.withDefault("num_key_value_heads", &c.NumKeyValueHeads)
	if c.HeadDim != 0 {
		p.withDefault("head_dim", &c.HeadDim)
	} else if !p.get("head_dim", &c.HeadDim) && c.NumAttentionHeads > 0 {
		if c.HeadDim = c.HiddenSize / c.NumAttentionHeads; c.HeadDim*c.NumAttentionHeads != c.HiddenSize {
			p.bad("hidden_size: %d, want a multiple of num_attention_heads %d, or head_dim", c.HiddenSize, c.NumAttentionHeads)
		}
	}
	p.withDefault("max_position_embeddings", &c.MaxPositionEmbeddings)
	p.withDefault("rms_norm_eps", &c.RMSNormEps)
	p.withDefault("tie_word_embeddings", &c.TieWordEmbeddings)
	p.get("initializer_range", &c.InitializerRange)
}

func (p *configParser) attention() {
	c, f, dropout := &p.out.Config, p.family, 0.0
	p.bias("attention_bias", f.qkvBias, &c.QKVBias)
	p.bias("attention_bias", f.oBias, &c.OBias)
	p.bias("mlp_bias", f.mlpBias, &c.MLPBias)
	if p.get("attention_dropout", &dropout) && dropout != 0 {
		p.bad("attention_dropout: %v, want 0", dropout)
	}
	p.window()
	var layers []string
	if p.get("layer_types", &layers) {
		if len(layers) != c.NumHiddenLayers {
			p.bad("layer_types: %d layers, num_hidden_layers is %d", len(layers), c.NumHiddenLayers)
		}
		if i := slices.IndexFunc(layers, func(s string) bool { return s != "full_attention" }); i >= 0 {
			p.bad("layer_types[%d]: %q, want \"full_attention\"", i, layers[i])
		}
		c.Window, c.WindowFrom = 0, 0 // the list decides
	}
	if f.layersWithoutRotation {
		p.layersWithoutRotation()
	}
}

// bias reads a switch of biases as the family's rule says.
func (p *configParser) bias(key string, rule rule, has *bool) {
	switch rule {
	case always:
		*has = true
	case asConfigured:
		p.get(key, has)
	case never:
	}
}

// window reads which layers see a part of the context only.
func (p *configParser) window() {
	c, uses := &p.out.Config, false
	switch p.family.window {
	case windowOfAll:
		if _, ok := p.fields["sliding_window"]; !ok {
			c.Window = 4096
		}
		p.get("sliding_window", &c.Window)
	case windowOfLast:
		p.used["sliding_window"] = true // without effect when use_sliding_window is off
		if p.get("use_sliding_window", &uses) && uses {
			c.WindowFrom = 28
			p.get("sliding_window", &c.Window)
			p.get("max_window_layers", &c.WindowFrom)
		}
	case noWindow:
	}
}

// layersWithoutRotation reads no_rope_layers, where 1 stands for a rotation, or its interval.
func (p *configParser) layersWithoutRotation() {
	c, every := &p.out.Config, 4
	var rotates []int
	p.get("no_rope_layer_interval", &every)
	if !p.get("no_rope_layers", &rotates) {
		c.NoRopeEvery = every
		return
	}
	if c.NoRopeEvery = slices.Index(rotates, 0) + 1; !slices.Equal(rotates, rotatingLayers(*c)) {
		p.bad("no_rope_layers: %v, want 0 for every n-th of num_hidden_layers %d and 1 for the others", rotates, c.NumHiddenLayers)
	}
}

// rotatingLayers is no_rope_layers: 1 for each layer that rotates.
func rotatingLayers(c Config) []int {
	out := make([]int, c.NumHiddenLayers)
	for i := range out {
		if c.rotates(i) {
			out[i] = 1
		}
	}
	return out
}

// rope reads rope_theta and rope_scaling, or the rope_parameters that newer
// versions of transformers write in their place. rope_scaling wins over them.
func (p *configParser) rope() {
	theta := p.get("rope_theta", &p.out.RopeTheta)
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		var raw json.RawMessage
		if !p.get(key, &raw) {
			continue
		}
		rope := ropeFile{}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&rope); err != nil {
			p.bad("%s: %s", key, strings.TrimPrefix(err.Error(), "json: "))
			continue
		}
		p.scaling(key, rope)
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
	switch {
	case theta:
	case p.family.theta == 0:
		p.bad("rope_theta: missing")
	default:
		p.out.RopeTheta = p.family.theta
		p.note("rope_theta is absent: %v, the default", p.family.theta)
	}
}

// ropeFile is the object of rope_scaling and rope_parameters.
type ropeFile struct {
	Rope
	OldKind  string   `json:"type"`
	Theta    *float64 `json:"rope_theta"`
	Partial  *float64 `json:"partial_rotary_factor"`
	Truncate *bool    `json:"truncate"`
}

// scaling reads the fields of a rope object besides rope_theta.
func (p *configParser) scaling(key string, rope ropeFile) {
	r := rope.Rope
	if r.Kind == "" {
		r.Kind = rope.OldKind
	}
	if rope.Partial != nil && *rope.Partial != 1 {
		p.bad("%s: partial_rotary_factor %v, want 1", key, *rope.Partial)
	}
	if rope.Truncate != nil && !*rope.Truncate {
		p.bad("%s: truncate false is not supported, want true", key)
	}
	switch {
	case r.Kind == "default":
		r = Rope{}
	case !slices.Contains(p.family.ropes, r.Kind):
		p.bad("%s: type %q is not supported, want default, %s or null", key, r.Kind, strings.Join(p.family.ropes, ", "))
		return
	}
	p.out.Rope = r
}

// leftovers reports unread fields as errors, or as notes if they are off.
func (p *configParser) leftovers() {
	for _, key := range neutral() {
		p.used[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(p.fields)) {
		value := p.fields[key]
		switch {
		case p.used[key] || strings.HasPrefix(key, "_"):
		case slices.Contains([]string{"null", "false", "0", "0.0", `""`, "[]", "{}"}, string(value)):
			p.note("%s: %s is unknown here, and kept", key, value)
		default:
			p.bad("%s: %s is unknown here: remove it if the network's numbers do not depend on it", key, shorten(value))
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

// kindOf names the kind of value that a field of v's type holds.
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
	case *[]int:
		return "a list of integers"
	default:
		return "an object"
	}
}

// EncodeConfig returns the config.json of a network whose weights have the type, in torch's
// words: float32, bfloat16 or float16. Adapters are no part of it.
func EncodeConfig(c Config, dtype string) ([]byte, error) {
	f := c.Family()
	type dimensions struct { // in the order of Config
		VocabSize             int     `json:"vocab_size"`
		HiddenSize            int     `json:"hidden_size"`
		IntermediateSize      int     `json:"intermediate_size"`
		NumHiddenLayers       int     `json:"num_hidden_layers"`
		NumAttentionHeads     int     `json:"num_attention_heads"`
		NumKeyValueHeads      int     `json:"num_key_value_heads"`
		HeadDim               int     `json:"head_dim"`
		MaxPositionEmbeddings int     `json:"max_position_embeddings"`
		RopeTheta             float64 `json:"rope_theta"`
		RMSNormEps            float64 `json:"rms_norm_eps"`
		TieWordEmbeddings     bool    `json:"tie_word_embeddings"`
		InitializerRange      float64 `json:"initializer_range"`
	}
	out := struct {
		Architectures    []string `json:"architectures"`
		ModelType        string   `json:"model_type"`
		HiddenAct        string   `json:"hidden_act"`
		AttentionBias    *bool    `json:"attention_bias,omitempty"`
		MLPBias          *bool    `json:"mlp_bias,omitempty"`
		AttentionDropout float64  `json:"attention_dropout"`
		TorchDType       string   `json:"torch_dtype"`
		UseCache         bool     `json:"use_cache"`
		dimensions
		RopeScaling   *Rope            `json:"rope_scaling,omitempty"`
		SlidingWindow *json.RawMessage `json:"sliding_window,omitempty"`
		NoRopeLayers  []int            `json:"no_rope_layers,omitempty"`
	}{
		Architectures: []string{f.Class}, ModelType: f.ModelType, HiddenAct: "silu", TorchDType: dtype, UseCache: true,
		dimensions: dimensions{
			c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumHiddenLayers, c.NumAttentionHeads, c.NumKeyValueHeads, c.HeadDim,
			c.MaxPositionEmbeddings, c.RopeTheta, c.RMSNormEps, c.TieWordEmbeddings, c.InitializerRange,
		},
	}
	if f.qkvBias == asConfigured {
		out.AttentionBias = &c.QKVBias
	}
	if f.mlpBias == asConfigured {
		out.MLPBias = &c.MLPBias
	}
	if c.Rope != (Rope{}) {
		out.RopeScaling = &c.Rope
	}
	if f.window == windowOfAll { // absent would be 4096
		none := json.RawMessage("null")
		out.SlidingWindow = &none
	}
	if f.layersWithoutRotation {
		out.NoRopeLayers = rotatingLayers(c)
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode config.json: %w", err)
	}
	return append(data, '\n'), nil
}
