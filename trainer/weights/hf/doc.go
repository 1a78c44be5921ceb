// Package hf owns model directories in Hugging Face layout: config.json, the
// tokenizer's files, and the weights in one safetensors file or in shards under
// an index. It reads the families of trainer/model and refuses models that its networks do not
// compute; it writes directories that other tools load.
//
// Invariant: a directory is complete or it is not there.
package hf

import (
	"errors"
	"fmt"
)

// Files of a directory.
const (
	ConfigFile          = "config.json"
	TokenizerFile       = "tokenizer.json"
	TokenizerConfigFile = "tokenizer_config.json"
	TemplateFile        = "chat_template.jinja"
	GenerationFile      = "generation_config.json"
	weightsFile         = "model.safetensors"
	indexFile           = "model.safetensors.index.json"
)

// named puts the name of a file before each of the joined errors.
func named(file string, err error) error {
	var out []error
	for _, e := range flatten(err) {
		out = append(out, fmt.Errorf("%s: %w", file, e))
	}
	return errors.Join(out...)
}

// flatten returns the errors that were joined, one line each.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}
