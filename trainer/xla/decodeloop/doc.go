// Package decodeloop keeps a policy, its keys and values and the loop that decodes on an
// accelerator. The host sends one small array for each call and gets one back, whatever
// the number of tokens that the call makes.
//
// There are three kinds of programs. Prefill computes keys and values of contexts. Decode
// makes up to Ahead tokens of every slot: the device samples them, with the draws of
// internal/rl, and feeds them back to itself. Copy copies blocks. Each is compiled once for
// each bucket of sizes; see Buckets.
//
// Keys and values lie in blocks of BlockTokens tokens, which callers hand out. The cache
// never leaves the device: a program that changes it updates it in place.
//
// The package knows nothing of requests, sessions and versions: trainer/engine does.
//
// Invariant: the output of a slot does not depend on the other slots of a call, as far
// as the device computes the rows of a product alike.
package decodeloop
