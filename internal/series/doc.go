// Package series defines the numbers of a run: name, unit, meaning, and how each is made
// from what a step did. It also encodes them as event files of TensorBoard (TFRecord frames
// of tensorflow/core/util/event.proto, scalars only). It stores and prints nothing.
//
// Invariant: a name in the record of a step has one row in the table of this package, and
// nothing else in the program spells it.
package series
