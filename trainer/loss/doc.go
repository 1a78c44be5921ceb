// Package loss owns the objectives of training as graph functions: token
// log-probabilities, the supervised loss and the clipped policy objective of
// GRPO. It holds no weights, no state and no reduction over microbatches.
//
// Invariant: every loss is a sum over tokens divided by a denominator that the
// caller gives, the number of loss tokens of the whole minibatch. The losses and
// gradients of its microbatches therefore add up to those of the minibatch, in
// whatever way it is split.
//
// Axes: N tokens (any shape, the same for all arguments of a call), V vocabulary.
package loss
