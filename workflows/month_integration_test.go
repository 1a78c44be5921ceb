//go:build integration

package workflows_test

import "testing"

// TestSimulatedMonth: a month on 64 nodes of 8 GPUs, of which one is lost a day and two
// are drained for maintenance, under runs of five priorities.
func TestSimulatedMonth(t *testing.T) {
	s := season{nodes: 64, days: 30, runs: 24, steps: 60, lostPerDay: 1, drainedPerDay: 2, seed: 2026}
	s.play(t).report(t)
}
