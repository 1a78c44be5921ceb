package sampling

import (
	"time"

	"temper/internal/rl"
)

// counts sums trajectories; those that the infrastructure lost count only as such.
type counts struct {
	n, calls, failed, tokens, turns, infra, clipped int
	reward                                          float64
	sample, tool                                    time.Duration
}

func tally(ts []rl.Trajectory) counts {
	var c counts
	for i := range ts {
		c.add(&ts[i])
	}
	return c
}

func (c *counts) add(t *rl.Trajectory) {
	c.sample += t.SampleTime
	c.tool += t.ToolTime
	if t.StopReason == rl.StopInfraError {
		c.infra++
		return
	}
	calls, failed := t.ToolCounts()
	c.n++
	c.calls += calls
	c.failed += failed
	c.tokens += t.ResponseTokens()
	c.turns += len(t.Turns)
	c.reward += t.Reward
	if t.StopReason == rl.StopMaxTokens {
		c.clipped++
	}
}

func (c *counts) mean(v float64) float64 {
	if c.n == 0 {
		return 0
	}
	return v / float64(c.n)
}
