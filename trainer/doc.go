// Package trainer owns the policy being trained: its weights, AdamW's moments
// and the counters on which the next update depends, all on one device. It
// turns batches into updates; it neither samples nor scores, and it decides
// nothing about when to save or publish.
//
// Invariant: a call either applies all of its updates or none. On the CPU
// backend the state after it is a pure function, bit for bit, of the state
// before it, the configuration and the arguments.
//
// Axes in comments: B rows of a microbatch, T tokens of a row.
package trainer
