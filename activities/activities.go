// Package activities holds the Temporal activities: thin structs of ports that
// resolve references, call one package and write references back. It owns the
// mapping from errors to Temporal's error types and no algorithm.
//
// Invariant: every activity is idempotent by (run, step): repeating one gives
// the stored answer and changes nothing.
package activities
