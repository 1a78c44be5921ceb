//go:build integration

package workflows_test

import "testing"

// TestSimulatedMonth: a month on 16 nodes of 8 GPUs, of which one is lost every fourth
// day, the rate of one a day for 64 nodes, and one is drained every second day, under
// runs of five priorities.
func TestSimulatedMonth(t *testing.T) {
	s := season{nodes: 16, days: 30, runs: 12, steps: 40, lostPerDay: 0.25, drainedPerDay: 0.5, seed: 2026}
	s.play(t).report(t)
}
