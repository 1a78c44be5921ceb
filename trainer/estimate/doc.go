// Package estimate is the arithmetic of a training step: bytes on each device,
// by what they are for, and floating-point operations. It runs nothing.
//
// Axes: B rows of a device pass on one data replica, T tokens of a row,
// N = B*T, L layers, D hidden size, F feed-forward size, H heads, K key/value
// heads, E head size, V vocabulary, P parameters. A layer's heads, feed-forward
// columns and the vocabulary are divided by the model axis of the mesh.
//
// Two kinds of runtime are told apart. The Go backend keeps the result of every
// operation that a gradient needs, in float32; its figures are counted from the
// graph and held to real steps within 15 % by the tests of tools/bench/trainerbench. XLA
// fuses elementwise operations; its figures count what a fused graph has to keep
// and are upper estimates that no GPU has confirmed yet.
//
// The forward passes that score a batch (rl.loss.entropy_fraction, several
// minibatches, a reference policy) have no item: they come before the first
// update and hold less than its backward pass. Engines of the same process are
// counted only where a plan names their slots.
//
// Invariant: the items of a report add up to its peak.
package estimate
