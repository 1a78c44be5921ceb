// Package loss owns the objectives of training as graph functions: token
// log-probabilities, at once or in chunks of the vocabulary, the supervised
// loss, and the objectives of policy updates with their measures. It holds no
// weights, no state and no reduction over microbatches.
//
// Invariant: every loss is a sum over tokens, divided by a denominator of the whole minibatch
// that the caller gives. A sum over a sequence takes the tokens with the sequence's number. So
// the losses and gradients of microbatches add up to the minibatch's, however it is
// split, packed or ordered, if each sequence is in one microbatch.
//
// Axes: N tokens (any shape, the same for all arguments of a call), V
// vocabulary, C a chunk of it, D width of the hidden states.
package loss
