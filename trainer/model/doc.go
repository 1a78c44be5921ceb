// Package model owns the description of a decoder.
//
// Config describes a network: dimensions, and the switches by which the families of
// transformers differ. ParseConfig and EncodeConfig read and write it as a config.json. Layer
// names the tensors of a layer and how they are used, and Tensors lists all tensors. QKV and
// FeedForward define the computation of a layer. Four passes use them and differ in the rest:
// graphs.Forward, graphs.DecodeStep, trainer/cpu/decode on the CPU, and
// trainer/xla/decodeloop. A new family is a row of families; a new switch is a field of
// Config, and one place in Layer, QKV or FeedForward.
//
// Tensor names and stored layouts follow the Hugging Face checkpoints
// ([out, in] for linear weights). Norms are RMSNorm before both halves of a layer, rotations
// turn pairs (i, i + E/2), and feed-forward parts are SwiGLU.
//
// The package knows no device and no graph, and owns neither optimizer nor loss nor
// sampling.
//
// Axes: N tokens of a pass, D hidden, H heads, K key/value heads, E head dimension,
// F intermediate, V vocabulary.
package model
