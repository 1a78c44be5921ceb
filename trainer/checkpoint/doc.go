// Package checkpoint owns the form of training state and published policies in a
// blob.Store: checkpoints as content-addressed shards under a manifest, policies as folders
// in Hugging Face layout. It exports policies for servers of other programs, and computes
// the log-probabilities that such a server must report. It knows no algorithm.
//
// Invariant: a checkpoint or policy exists when its manifest does. The manifest is written
// last, by conditional put, and pins each byte that it names by hash.
package checkpoint
