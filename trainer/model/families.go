package model

import (
	"fmt"
	"slices"
	"strings"
)

// Family is one architecture of transformers: its names in files, the common properties of
// its networks, and the values of fields that a config.json leaves out.
type Family struct {
	// ModelType and Class are model_type and the entry of architectures in config.json.
	ModelType, Class string
	// GGUF is the architecture in llama.cpp's files; empty where this program does not
	// write them.
	GGUF string
	// GGUFInterleaved means that llama.cpp pairs neighbouring dimensions of queries and keys,
	// so that the rows of their projections change places in its files.
	GGUFInterleaved bool

	noQKNorm              bool
	qkvBias, oBias        rule // as attention_bias says, where they may be
	mlpBias               rule
	ropes                 []string // kinds besides the plain one
	window                windowRule
	layersWithoutRotation bool // no_rope_layers

	headDim   int // 0: hidden_size / num_attention_heads
	kvHeads   int // 0: num_attention_heads
	positions int
	theta     float64 // 0: rope_theta must be there
	tied      bool
}

// rule states whether networks of a family have a property.
type rule int

const (
	never rule = iota
	always
	asConfigured
)

// windowRule selects the layers of a family with a sliding window.
type windowRule int

const (
	noWindow     windowRule = iota
	windowOfAll             // sliding_window: all layers, 4096 when absent
	windowOfLast            // use_sliding_window: the layers from max_window_layers on
)

// families lists the families that this package reads and writes. The first one is the family
// of a Config that names none. Defaults are the ones of transformers 5.
func families() []Family {
	scaled := []string{RopeLinear, RopeDynamic, RopeLlama3, RopeYarn}
	return []Family{
		{ModelType: "qwen3", Class: "Qwen3ForCausalLM", GGUF: "qwen3", qkvBias: asConfigured, oBias: asConfigured,
			ropes: scaled, window: windowOfLast, headDim: 128, kvHeads: 32, positions: 32768, theta: 1e4},
		{ModelType: "qwen2", Class: "Qwen2ForCausalLM", GGUF: "qwen2", noQKNorm: true, qkvBias: always,
			ropes: scaled, window: windowOfLast, kvHeads: 32, positions: 32768, theta: 1e4},
		{ModelType: "llama", Class: "LlamaForCausalLM", GGUF: "llama", GGUFInterleaved: true, noQKNorm: true,
			qkvBias: asConfigured, oBias: asConfigured, mlpBias: asConfigured, ropes: scaled, positions: 2048, theta: 1e4},
		{ModelType: "mistral", Class: "MistralForCausalLM", GGUF: "llama", GGUFInterleaved: true, noQKNorm: true,
			ropes: scaled, window: windowOfAll, kvHeads: 8, positions: 131072, theta: 1e4},
		{ModelType: "smollm3", Class: "SmolLM3ForCausalLM", noQKNorm: true, qkvBias: asConfigured, oBias: asConfigured, mlpBias: asConfigured,
			ropes: scaled, window: windowOfLast, layersWithoutRotation: true, kvHeads: 4, positions: 32768, tied: true},
	}
}

// familyOf finds a family by its model_type; empty is the default one.
func familyOf(modelType string) (Family, error) {
	all := families()
	if modelType == "" {
		return all[0], nil
	}
	i := slices.IndexFunc(all, func(f Family) bool { return f.ModelType == modelType })
	if i < 0 {
		var names []string
		for _, f := range all {
			names = append(names, f.ModelType)
		}
		return Family{}, fmt.Errorf("model_type: %q, want one of %s", modelType, strings.Join(names, ", "))
	}
	return all[i], nil
}

// Family is the family of a valid configuration.
func (c Config) Family() Family {
	f, err := familyOf(c.FamilyName)
	if err != nil {
		panic(err) // Validate refuses it
	}
	return f
}

// configName is Config.FamilyName of the family.
func (f Family) configName() string {
	if f.ModelType == families()[0].ModelType {
		return ""
	}
	return f.ModelType
}

// check reports switches that the family's files cannot express.
func (f Family) check(c Config) (errs []error) {
	bad := func(what string) { errs = append(errs, fmt.Errorf("a network of family %s %s", f.ModelType, what)) }
	if c.FamilyName == families()[0].ModelType {
		bad("is the default: leave its name out")
	}
	if f.noQKNorm != c.NoQKNorm {
		bad(fmt.Sprintf("has normalised queries and keys: %v, want %v", !c.NoQKNorm, !f.noQKNorm))
	}
	for _, b := range []struct {
		what string
		rule rule
		has  bool
	}{{"queries, keys and values", f.qkvBias, c.QKVBias}, {"the output of attention", f.oBias, c.OBias}, {"feed-forward parts", f.mlpBias, c.MLPBias}} {
		if b.rule == always && !b.has || b.rule == never && b.has {
			bad(fmt.Sprintf("has biases of %s: %v, want %v", b.what, b.has, !b.has))
		}
	}
	if f.oBias == asConfigured && c.QKVBias != c.OBias {
		bad("has all biases of attention or none")
	}
	if c.Rope.Kind != "" && !slices.Contains(f.ropes, c.Rope.Kind) {
		bad("has no rotations of type " + c.Rope.Kind)
	}
	if c.NoRopeEvery != 0 && !f.layersWithoutRotation || c.NoRopeEvery < 0 {
		bad(fmt.Sprintf("has no rotation in every layer %d", c.NoRopeEvery))
	}
	return errs
}
