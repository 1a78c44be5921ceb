// Package trainer turns batches into updates of a policy. It neither samples nor
// scores rollouts, and it does not decide when to save or publish. A Trainer puts
// together the packages below it, each of which has one job:
//
//	packing    which tokens meet in which device pass
//	feed       the inputs of a pass, as tensors
//	schedule   the learning rate of a step
//	optimizer  AdamW, and which tensors it trains
//	state      weights, moments, counters; their copies on the host
//	pass       the graphs: built, compiled, called side by side or over a mesh
//
// What is left here is the step: one call of SFTStep or Update.
//
// Invariant: a call applies either all of its updates or none. On the CPU backend the
// state after it is a pure function, bit for bit, of the state before it, the
// configuration and the arguments.
package trainer
