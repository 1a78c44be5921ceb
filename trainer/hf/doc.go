// Package hf owns model directories in Hugging Face layout: config.json, the
// tokenizer's files, and the weights in one safetensors file or in shards under
// an index. It reads the families of trainer/model and refuses what its networks do not
// compute; it writes directories that other tools load.
//
// Invariant: a directory is complete or it is not there.
package hf

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
