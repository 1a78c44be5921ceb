// Package estimate is the arithmetic of a training step: bytes on each device, listed
// by purpose, and floating-point operations. It runs nothing.
//
// Axes: B rows of a device pass on one data replica, T tokens of a row,
// N = B*T, L layers, D hidden size, F feed-forward size, H heads, K key/value
// heads, E head size, V vocabulary, P parameters. A layer's heads, feed-forward
// columns and the vocabulary are divided by the model axis of the mesh.
//
// There are two kinds of runtime. The Go backend keeps the result of every operation that a
// gradient needs, in float32. Its figures are counted from the graph, and the tests of
// tools/bench/trainerbench hold them to real steps within 15 %. XLA fuses elementwise
// operations. Its figures count the values that a fused graph has to keep. Tests compare them
// with its compiler's report, and they were compared with one GPU's
// (docs/decisions/0013-xla-devices-and-meshes.md).
//
// The forward passes that score a batch (rl.loss.entropy_fraction, several
// minibatches, a reference policy) have no item: they come before the first update and
// hold less than its backward pass. An engine in the same process is counted only where
// a plan names its slots.
//
// Invariant: the items of a report add up to its peak.
package estimate
