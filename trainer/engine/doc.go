// Package engine owns token generation with a Qwen3 network: continuous
// batching over cache rows, sessions that keep their keys and values between
// turns, sampling, and the swap of weights. It implements policy.Loader.
//
// It does not train, tokenize or schedule rollouts, and it reads published
// policies only through Config.LoadWeights.
//
// Invariant: tokens and log-probabilities of a request depend on the weights
// and the request alone, bit for bit. The other requests of a step, the row of the
// request and an eviction in between leave no trace. DESIGN.md explains how.
package engine
