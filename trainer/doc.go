// Package trainer turns batches into updates of a policy. It neither samples nor scores
// rollouts, and it does not decide when to save or publish. A Trainer joins the packages below
// it:
//
//	packing    which tokens meet in which device pass
//	inputs     the inputs of a pass, as tensors
//	optimizer  weights, moments and counters; AdamW; the learning rate of a step
//	passes     the graphs: built, compiled, called concurrently or over a mesh
//
// This package owns the step: one call of SFTStep or Update.
//
// Invariant: a call applies either all of its updates or none. On the CPU backend the
// state after it is a pure function, bit for bit, of the state before it, the
// configuration and the arguments.
package trainer
