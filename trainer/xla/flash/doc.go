// Package flash expresses the attention of whole sequences and its gradient as loops in a
// computation graph, over pairs of a block of queries and a block of keys. Answers come from
// an online softmax (Dao et al., arXiv 2205.14135, algorithm 1); the gradient computes the
// scores of each pair again from the log-sum-exp of the forward pass (appendix B.4). No value
// of all queries and all keys ever exists. Pairs above the diagonal are skipped, and in packed
// rows pairs without a common segment.
//
// It knows no network, no weights and no mesh: rows and heads are leading axes of every
// product, so that a partitioner can divide them. It is for backends that compile loops, which
// is XLA; the Go backend has package trainer/cpu/attention.
//
// Invariant: results equal softmax over whole rows except for rounding.
//
// Axes: B rows, T tokens, N = B*T, H heads, K key/value heads, G = H/K, E head dimension;
// n blocks of b tokens.
package flash
