package model

import (
	"errors"
	"fmt"
)

// Config holds the dimensions of the network under the names of a Hugging Face
// config.json.
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
	// InitializerRange is the standard deviation of Init's normal weights.
	InitializerRange float64 `json:"initializer_range"`
	// LoRA adds adapters, which are then all that training changes.
	LoRA LoRA `json:"lora,omitzero"`
}

// Validate reports every field that no network can be built from.
func (c Config) Validate() error {
	var errs []error
	positive := func(key string, v int) {
		if v < 1 {
			errs = append(errs, fmt.Errorf("%s: %d, want at least 1", key, v))
		}
	}
	positive("vocab_size", c.VocabSize)
	positive("hidden_size", c.HiddenSize)
	positive("intermediate_size", c.IntermediateSize)
	positive("num_hidden_layers", c.NumHiddenLayers)
	positive("num_attention_heads", c.NumAttentionHeads)
	positive("num_key_value_heads", c.NumKeyValueHeads)
	positive("max_position_embeddings", c.MaxPositionEmbeddings)
	positive("head_dim", c.HeadDim)
	if c.HeadDim > 0 && c.HeadDim%2 != 0 {
		errs = append(errs, fmt.Errorf("head_dim: %d, want an even number", c.HeadDim))
	}
	if c.NumKeyValueHeads > 0 && c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		errs = append(errs, fmt.Errorf("num_attention_heads: %d, want a multiple of num_key_value_heads %d",
			c.NumAttentionHeads, c.NumKeyValueHeads))
	}
	if !(c.RopeTheta > 1) {
		errs = append(errs, fmt.Errorf("rope_theta: %v, want more than 1", c.RopeTheta))
	}
	if !(c.RMSNormEps > 0) {
		errs = append(errs, fmt.Errorf("rms_norm_eps: %v, want more than 0", c.RMSNormEps))
	}
	if !(c.InitializerRange > 0) {
		errs = append(errs, fmt.Errorf("initializer_range: %v, want more than 0", c.InitializerRange))
	}
	if err := c.LoRA.check(); err != nil {
		errs = append(errs, fmt.Errorf("lora: %w", err))
	}
	return errors.Join(errs...)
}

// NumParameters returns the number of scalars, those of adapters included.
func (c Config) NumParameters() int {
	n := 0
	for _, t := range c.Tensors() {
		n += t.Size()
	}
	return n
}

// headName is the weight that maps hidden states to the vocabulary.
func (c Config) headName() string {
	if c.TieWordEmbeddings {
		return nameEmbed
	}
	return nameHead
}

// groups is the number of query heads that share a key/value head.
func (c Config) groups() int { return c.NumAttentionHeads / c.NumKeyValueHeads }
