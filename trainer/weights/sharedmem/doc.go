// Package sharedmem passes the weights of published policies from a trainer to the engines
// on its host through memory. The trainer publishes a policy from a file in a file system of
// memory, its segment. An engine maps that file; in the trainer's process it is mapped
// already. Without a segment the engine reads the shards from the store. The package owns
// the segments and knows no engine and no device.
//
// Invariant: the store is the truth. A segment has the name of its policy's manifest, and
// an engine checks it against the checksums of the store.
package sharedmem
