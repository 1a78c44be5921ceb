// Package engine owns token generation: continuous batching, keys and values in blocks that
// sessions keep between turns and that equal contexts share, sampling, and the swap of
// weights. It implements policy.Loader.
//
// It does not train, tokenize or schedule rollouts, and it reads published policies only
// through Config.LoadWeights.
//
// Invariant: tokens and log-probabilities of a request depend on the weights and the request
// alone, bit for bit. Other requests of a step, the blocks of the request, the sequence that
// fed them and an eviction change nothing. DESIGN.md explains how.
package engine
