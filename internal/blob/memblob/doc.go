// Package memblob holds stores in the memory of one process, for tests and short-lived
// tools. Store keeps blobs in a map. Overlay lays a scratch store over another store: reads
// fall through, writes and deletes stay in the scratch, so that the code that makes a run
// can work on the run without changing it.
//
// Invariant: stored bytes are never modified in place, and nothing is written to the store
// below an Overlay.
package memblob
