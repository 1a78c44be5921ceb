// Package attention computes the attention of whole sequences and its gradient on a CPU, a
// block of queries at a time. It never holds a matrix of all queries and all keys: a block has
// the scores of its queries for the keys up to itself, and the gradient computes them again.
//
// A row of scores is complete within its block. So it needs no online softmax (arXiv
// 2205.14135, algorithm 1), and the answers have the bits of an engine that decodes the same
// tokens one by one.
//
// The package knows no graph and no network. Invariant: with the kernels of one Variant a
// result depends on the inputs alone, and the answers equal the CPU backend's attention, bit
// for bit.
package attention
