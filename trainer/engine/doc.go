// Package engine owns token generation with a decoder: continuous
// batching, keys and values in blocks that sessions keep between turns and that equal
// contexts share, sampling, and the swap of weights. It implements policy.Loader.
//
// It does not train, tokenize or schedule rollouts, and it reads published
// policies only through Config.LoadWeights.
//
// Invariant: tokens and log-probabilities of a request depend on the weights
// and the request alone, bit for bit. The other requests of a step, the blocks of
// the request, who fed them, and an eviction in between leave no trace. DESIGN.md explains how.
package engine
