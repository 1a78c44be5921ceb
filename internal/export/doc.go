// Package export writes what runs leave in forms for people and for other programs: one
// line a step while a run trains, tables when it is done, trajectories in the columns of
// verl, series for MLflow, W&B and TensorBoard. It reads through internal/history, computes
// nothing that is not in the records, and changes no run.
//
// Invariant: equal records give equal text, and what was exported twice is there once.
package export
