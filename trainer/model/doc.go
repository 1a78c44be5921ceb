// Package model owns the Qwen3 transformer as computation graphs: RMSNorm,
// rotary positions, grouped-query attention with normalised queries and keys,
// SwiGLU, a tied or untied head. Field and tensor names are those of the
// Hugging Face checkpoints, and so are the stored layouts ([out, in] for
// linear weights).
//
// It owns neither optimizer nor loss nor sampling, and it keeps no state: the
// weights live in the caller's model.Store under ScopeName.
//
// Graph functions panic on misuse, as graph building does everywhere in GoMLX; all
// other functions return errors. Every graph must call SetTraining(g, true) on its
// scope before it reads a weight: otherwise the CPU backend compiles the present
// values into the graph as constants. Forward and DecodeStep make that call.
//
// Invariant: the logits of a token depend only on the tokens of its own segment at
// smaller or equal positions. Packing, padding and caching change only rounding.
//
// Axes: B batch, T tokens, S cache length, N tokens of a decode step, D hidden,
// H heads, K key/value heads, G heads per key/value head, E head dimension,
// F intermediate, V vocabulary.
package model
