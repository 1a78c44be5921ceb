// Package chaos kills the processes of a service in the middle of a run and says
// whether the run ends like one that nobody disturbed. It owns the schedule of
// kills, the search for victims, and the comparison of what runs leave in the
// store. How a service is started and asked is its Host's business.
//
// Invariant: which process is killed, and after how much of the run, is a
// function of the seed.
package chaos

import (
	"slices"
	"time"

	"temper/internal/rl"
)

// Config says how much to kill.
type Config struct {
	Seed uint64
	// Kills of one run, beside those of fail points.
	Kills int
	// Victims are drawn with equal chances.
	Victims []Victim
}

// Kill is one kill of a schedule.
type Kill struct {
	Victim Victim
	// After is the share of the run's objects that are in the store before it.
	After float64
	// Delay passes between that moment and the kill.
	Delay time.Duration
	// Pick chooses among several processes of the victim's kind.
	Pick uint64
}

// The last objects of a run are written within milliseconds of its end, and a
// kill has to come before that.
const (
	latest   = 0.95
	maxDelay = 250 * time.Millisecond
)

// Schedule draws the kills of one run, in order.
func (c Config) Schedule(run int) []Kill {
	kills := make([]Kill, c.Kills)
	for i := range kills {
		r := rl.Rand(rl.Seed(c.Seed, "chaos", uint64(run), uint64(i)))
		kills[i] = Kill{
			Victim: c.Victims[r.IntN(len(c.Victims))],
			After:  latest * r.Float64(),
			Delay:  time.Duration(r.Int64N(int64(maxDelay))),
			Pick:   r.Uint64(),
		}
	}
	slices.SortStableFunc(kills, func(a, b Kill) int {
		switch {
		case a.After < b.After:
			return -1
		case a.After > b.After:
			return 1
		default:
			return 0
		}
	})
	return kills
}
