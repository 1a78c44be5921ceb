package supervise

import "time"

// Backoff is the schedule of restarts. After the n-th death in a row a child
// starts again Initial * 2^(n-1) after it was healthy, Max at most, and at least
// Initial after it died: one that served for a while is back at once, and one that
// dies again and again does so ever more rarely. There is no jitter: children of
// one machine do not crowd anything, and a schedule that can be predicted can be
// read in a log.
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
	apart := b.Initial
	for range deaths {
		if apart >= b.Max/2 {
			apart = b.Max
			break
		}
		apart *= 2
	}
	return deaths + 1, min(max(apart-healthyFor, b.Initial), b.Max)
}
