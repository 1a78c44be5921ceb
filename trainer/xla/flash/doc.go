// Package flash expresses the attention of whole sequences and its gradient as loops in a
// computation graph, over pairs of a block of queries and a block of keys. Answers come
// from an online softmax (Dao et al., arXiv 2205.14135, algorithm 1); the gradient
// computes the scores of each pair again from the log-sum-exp that the forward pass keeps
// (appendix B.4). No value of all queries and all keys ever exists. Pairs above the
// diagonal are left out, and in packed rows those of segments that do not meet.
//
// It knows no network, no weights and no mesh: axes of rows and heads are leading axes of
// every product, so that a partitioner can divide them. It is for backends that compile
// loops, which is XLA; the Go backend has package blockwise.
//
// Invariant: results are those of softmax over whole rows, but for rounding.
//
// Axes: B rows, T tokens, N = B*T, H heads, K key/value heads, G = H/K, E head dimension;
// n blocks of b tokens.
package flash
