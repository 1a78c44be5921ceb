// Package enginebench measures how fast a policy engine decodes: ours in this process,
// and others beside it, in turns. It trains nothing.
//
// Invariant: every contender of a case gets the same prompts and as many new tokens.
package enginebench
