package model

import (
	"errors"
	"fmt"

	"temper/internal/config"
)

// Config describes a decoder: its dimensions under the names of a Hugging Face config.json,
// and the switches by which architectures differ. The zero value of every switch is the
// plain network: normalised queries and keys, no biases, one table of rotations, full
// attention, one feed-forward part a layer.
//
// Configs are comparable.
type Config struct {
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
	// InitializerRange is the standard deviation of the normal start weights.
	InitializerRange float64 `json:"initializer_range"`

	// FamilyName is the model_type of the family whose files hold the network; empty for
	// the default family.
	FamilyName string `json:"family,omitzero"`
	// NoQKNorm leaves the heads of queries and keys as they are projected.
	NoQKNorm bool `json:"no_qk_norm,omitzero"`
	// QKVBias, OBias and MLPBias add biases to the projections of attention, to its output,
	// and to the feed-forward part.
	QKVBias bool `json:"qkv_bias,omitzero"`
	OBias   bool `json:"o_bias,omitzero"`
	MLPBias bool `json:"mlp_bias,omitzero"`
	// Rope scales the frequencies of rotations.
	Rope Rope `json:"rope,omitzero"`
	// NoRopeEvery n leaves the queries and keys of every n-th layer without rotation; 0 rotates
	// all layers.
	NoRopeEvery int `json:"no_rope_every,omitzero"`
	// Window is the number of tokens, its own among them, that a query of a layer from
	// WindowFrom on sees; 0 is all.
	Window     int `json:"window,omitzero"`
	WindowFrom int `json:"window_from,omitzero"`
	// Experts replaces feed-forward parts by mixtures of experts.
	Experts Experts `json:"experts,omitzero"`

	// LoRA adds adapters, which are then all that training changes.
	LoRA LoRA `json:"lora,omitzero"`
}

// Experts describes a mixture of experts: a router picks TopK of Num feed-forward parts of
// Width for each token, in every layer or in each Every-th one.
type Experts struct {
	Num      int  `json:"num"`
	TopK     int  `json:"top_k"`
	Width    int  `json:"width"`
	Every    int  `json:"every"`
	NormTopK bool `json:"norm_top_k"` // divides the chosen weights by their sum
}

// OfRun is the network of the dimensions that a run's configuration states.
func OfRun(m config.Model, vocabSize int) Config {
	return Config{
		HiddenSize: m.HiddenSize, NumHiddenLayers: m.NumLayers, NumAttentionHeads: m.NumHeads,
		NumKeyValueHeads: m.NumKVHeads, HeadDim: m.HeadDim, IntermediateSize: m.IntermediateSize,
		VocabSize: vocabSize, RopeTheta: m.RopeTheta, RMSNormEps: m.RMSNormEps,
		TieWordEmbeddings: m.TieEmbeddings, MaxPositionEmbeddings: m.MaxContext,
		InitializerRange: m.InitializerRange,
	}
}

// Validate reports every field that no network can be built from, and every switch that the
// passes do not compute or the family's files cannot express.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		key   string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize},
		{"num_hidden_layers", c.NumHiddenLayers}, {"num_attention_heads", c.NumAttentionHeads},
		{"num_key_value_heads", c.NumKeyValueHeads}, {"max_position_embeddings", c.MaxPositionEmbeddings}, {"head_dim", c.HeadDim},
	} {
		if f.value < 1 {
			bad("%s: %d, want at least 1", f.key, f.value)
		}
	}
	if c.HeadDim > 0 && c.HeadDim%2 != 0 {
		bad("head_dim: %d, want an even number", c.HeadDim)
	}
	if c.NumKeyValueHeads > 0 && c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		bad("num_attention_heads: %d, want a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
	if !(c.RopeTheta > 1) {
		bad("rope_theta: %v, want more than 1", c.RopeTheta)
	}
	if !(c.RMSNormEps > 0) {
		bad("rms_norm_eps: %v, want more than 0", c.RMSNormEps)
	}
	if !(c.InitializerRange > 0) {
		bad("initializer_range: %v, want more than 0", c.InitializerRange)
	}
	errs = append(errs, c.Rope.check()...)
	errs = append(errs, c.unsupported()...)
	if f, err := familyOf(c.FamilyName); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, f.check(c)...)
	}
	if err := c.LoRA.check(); err != nil {
		bad("lora: %w", err)
	}
	return errors.Join(errs...)
}

// unsupported names the switches that no pass computes yet. A window that is no shorter
// than the longest context hides nothing.
func (c Config) unsupported() (errs []error) {
	if c.Window > 0 && c.Window < c.MaxPositionEmbeddings && c.WindowFrom < c.NumHiddenLayers {
		errs = append(errs, fmt.Errorf("sliding_window: %d is not supported yet, want null or at least max_position_embeddings %d", c.Window, c.MaxPositionEmbeddings))
	}
	if c.Experts.Num > 0 {
		errs = append(errs, fmt.Errorf("num_experts: %d, a mixture of experts is not supported yet", c.Experts.Num))
	}
	return errs
}

// NumParameters returns the number of scalars, adapters included.
func (c Config) NumParameters() int {
	n := 0
	for _, t := range c.Tensors() {
		n += t.Size()
	}
	return n
}

// HeadName is the weight that maps hidden states to the vocabulary.
func (c Config) HeadName() string {
	if c.TieWordEmbeddings {
		return NameEmbed
	}
	return NameHead
}

// Groups is the number of query heads that share a key/value head.
func (c Config) Groups() int { return c.NumAttentionHeads / c.NumKeyValueHeads }

// vocabMultiple is the width of the widest column tile of the CPU kernels.
const vocabMultiple = 64

// PaddedVocab is the width of decoded scores: the vocabulary rounded up, so that
// every column is computed by the same kernel.
func (c Config) PaddedVocab() int {
	return (c.VocabSize + vocabMultiple - 1) / vocabMultiple * vocabMultiple
}
