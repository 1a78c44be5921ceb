// Package decode is the pass of a decoding network on a CPU with AVX-512 or AVX2, in one call.
//
// graphs.DecodeStep describes the same pass as a graph of some hundred operations for any
// backend. With few tokens, the work of the CPU backend between operations costs more than
// the operations. This package does each operation in one loop, reads each weight
// once for all tokens, and needs no padding: any number of tokens is a pass.
//
// Invariant: it computes the bits of the graph on the CPU backend with the same choice of
// kernels. Each sum is added in the backend's order: products in chains of one panel,
// attention and norms in 16 lanes for AVX-512 and in 8 for AVX2. The engine compares both
// at every start and takes the graph where they differ.
package decode
