// Package meter owns the readings that all instruments take: processes and their
// memory from /proc, the time and the processor time of a piece of work, and
// medians. It knows nothing of what is measured.
//
// Invariant: a reading changes nothing in the process that is read.
package meter

import (
	"slices"
	"time"
)

// Median is the middle of the sorted values, the lower one of two; 0 without values.
func Median[T int | float64 | time.Duration](values []T) T {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// Pick takes one field of each row.
func Pick[R, T any](rows []R, field func(R) T) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = field(r)
	}
	return out
}
