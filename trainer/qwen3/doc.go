// Package qwen3 owns the Qwen3 transformer as computation graphs: RMSNorm,
// rotary positions, grouped-query attention with normalised queries and keys,
// SwiGLU, a tied or untied head. Field and tensor names are those of the
// Hugging Face checkpoints, and so are the stored layouts ([out, in] for
// linear weights).
//
// It owns neither optimizer nor loss nor sampling, and it keeps no state: the
// weights live in the caller's model.Store under ScopeName.
//
// Graph functions panic on misuse, as graph building does everywhere in GoMLX;
// everything else returns errors. Every graph must call SetTraining(g, true)
// on its scope before it touches a weight: without it the CPU backend bakes
// the weights of that moment into the graph. Forward and DecodeStep do it.
//
// Invariant: the logits of a token depend only on the tokens of its own
// segment at smaller or equal positions. Packing, padding and caching change
// nothing but rounding.
//
// Axes: B batch, T tokens, S cache length, N tokens of a decode step, D hidden,
// H heads, K key/value heads, G heads per key/value head, E head dimension,
// F intermediate, V vocabulary.
package qwen3
