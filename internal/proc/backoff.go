package proc

import "time"

// Backoff is the schedule of restarts. After the n-th death in a row a child
// starts again Initial * 2^(n-1) after it became healthy, but at most Max and at
// least Initial after it died. So a child that served for a while is back at once,
// and one that dies again and again starts less and less often. There is no jitter:
// the children of one machine do not crowd anything, and a schedule without chance
// can be read in a log.
type Backoff struct {
	Initial time.Duration // default 200 ms
	Max     time.Duration // default 10 s
	// ResetAfter is how long a child must have been healthy for the schedule to
	// start over. Default 30 s.
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

// next counts one more death of a child that was healthy for the given time. It
// returns the number of deaths in a row and the pause before the next start.
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
