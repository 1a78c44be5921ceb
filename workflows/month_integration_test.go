//go:build integration

package workflows_test

import (
	"os"
	"strconv"
	"testing"
)

// seasonNodesKey is the variable that makes the simulated cluster larger: 64 take half a minute.
const seasonNodesKey = "TEMPER_SEASON_NODES"

// TestSimulatedMonth: a month on 16 nodes of 8 GPUs, of which one is lost every fourth
// day, the rate of one a day for 64 nodes, and one is drained every second day, under
// runs of five priorities.
func TestSimulatedMonth(t *testing.T) {
	s := season{nodes: 16, days: 30, runs: 12, steps: 40, lostPerDay: 0.25, drainedPerDay: 0.5, seed: 2026}
	if text := os.Getenv(seasonNodesKey); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 16 {
			t.Fatalf("%s is %q, want 16 or more", seasonNodesKey, text)
		}
		s.nodes, s.runs, s.lostPerDay, s.drainedPerDay = n, n*3/4, float64(n)/64, float64(n)/32
	}
	s.play(t).report(t)
}
