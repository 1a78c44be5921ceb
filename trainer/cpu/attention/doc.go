// Package attention computes the attention of whole sequences and its gradient on a CPU, a
// block of queries at a time. No matrix of all queries and all keys ever exists: a block
// has the scores of its queries for the keys up to itself, and the gradient computes them
// again.
//
// A row of scores is whole within its block. An online softmax (arXiv 2205.14135,
// algorithm 1) is therefore not needed, and the answers keep the bits of an engine that
// decodes the same tokens one by one.
//
// It knows no graph and no network. Invariant: with the kernels of one Variant a result
// depends on the inputs alone, and the answers are those of the CPU backend's attention,
// bit for bit.
package attention
