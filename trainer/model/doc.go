// Package model owns the description of a decoder and the computation graphs made from it.
//
// Config says what a network is: dimensions, and the switches by which the families of
// transformers differ. ParseConfig and EncodeConfig read and write it as a config.json.
// Layer names the tensors of a layer and how they are used, and Tensors lists all tensors.
// QKV and FeedForward say what a layer computes, for four passes that differ in the rest:
// Forward and DecodeStep here, trainer/decode on the CPU, and trainer/ondevice. A new
// family is a row of families; a new switch is a field of Config, and one place in Layer,
// QKV or FeedForward.
//
// Tensor names are those of the Hugging Face checkpoints, and so are the stored layouts
// ([out, in] for linear weights). Norms are RMSNorm before both halves of a layer, rotations
// turn pairs (i, i + E/2), and feed-forward parts are SwiGLU.
//
// The package owns neither optimizer nor loss nor sampling, and it keeps no state: the
// weights live in the caller's store under ScopeName.
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
