package supervise

import "time"

// Backoff is the schedule of restarts: Initial, then twice as long each time up
// to Max. There is no jitter: children of one machine do not crowd anything,
// and a schedule that can be predicted can be read in a log.
type Backoff struct {
	Initial time.Duration // default 200 ms
	Max     time.Duration // default 10 s
	// ResetAfter is how long a child must have been healthy for the schedule to
	// begin anew. Default 30 s.
	ResetAfter time.Duration
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = 200 * time.Millisecond
	}
	if b.Max == 0 {
		b.Max = 10 * time.Second
	}
	if b.ResetAfter == 0 {
		b.ResetAfter = 30 * time.Second
	}
	return b
}

// next counts one more death, after the child was healthy for the given time,
// and returns the deaths in a row with the pause that follows them.
func (b Backoff) next(deaths int, healthyFor time.Duration) (int, time.Duration) {
	if healthyFor >= b.ResetAfter {
		deaths = 0
	}
	d := b.Initial
	for range deaths {
		if d >= b.Max/2 {
			return deaths + 1, b.Max
		}
		d *= 2
	}
	return deaths + 1, min(d, b.Max)
}
