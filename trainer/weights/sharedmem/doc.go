// Package sharedmem hands the weights of published policies from a trainer to the engines
// on its host through memory. The trainer publishes a policy from a file in a file
// system of memory, its segment; an engine maps that file, or, in the trainer's process,
// has it mapped already. Where there is no segment, the engine reads the shards from the
// store. The package owns the segments and knows no engine and no device.
//
// Invariant: the store is the truth. A segment has the name of the manifest of its
// policy, and what an engine takes from it has the checksums that the store has.
package sharedmem
