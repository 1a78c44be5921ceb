package sampling

import (
	"time"

	"temper/internal/rl"
	"temper/internal/series"
)

// counts sums up trajectories with the time that they took; excluded ones count only
// as such.
type counts struct {
	series.Tally
	infra        int
	sample, tool time.Duration
}

func tally(ts []rl.Trajectory) counts {
	var c counts
	for i := range ts {
		t := &ts[i]
		c.sample += t.SampleTime
		c.tool += t.ToolTime
		if t.Excluded() {
			c.infra++
			continue
		}
		c.Add(t)
	}
	return c
}
