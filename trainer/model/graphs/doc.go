// Package graphs builds the computation graphs of a network that package model describes:
// Forward for training and DecodeStep for decoding.
//
// Graph functions panic on misuse, as graph building does everywhere in GoMLX; all
// other functions return errors. Every graph must call SetTraining(g, true) on its
// scope before it reads a weight: otherwise the CPU backend compiles the present
// values into the graph as constants. Forward and DecodeStep make that call.
//
// Invariant: the logits of a token depend only on the tokens of its segment at
// smaller or equal positions. Packing, padding and caching change only rounding.
//
// Axes: B batch, T tokens, S cache length, N tokens of a decode step, D hidden,
// H heads, K key/value heads, G heads per key/value head, E head dimension,
// F intermediate, V vocabulary.
package graphs
