// Package chaos kills the processes of a service in the middle of a run, lets others
// join and leave, and says whether the run ends like one that nobody disturbed. It
// owns the schedule of kills and moves, the search for victims, the comparison of
// what runs leave in the store, and the ledger of trials. How a service is started
// and asked is its Host's business.
//
// Invariant: which process is killed or moved, in which stage of its life, and after
// how much of the run, is a function of the seed.
package chaos

import (
	"cmp"
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

// Life is the stage of a process's life in which it is killed.
type Life string

// Stages of a process's life.
const (
	Serving Life = "serving"
	// Starting is the life of a successor: its predecessor was killed just before.
	Starting Life = "starting"
	// Draining comes after a SIGTERM.
	Draining Life = "draining"
	// Joining is the life of a member that was added to the service just before.
	Joining Life = "joining"
	// Leaving is the end of a member that does not come back by itself.
	Leaving Life = "leaving"
)

// Kill is one kill of a schedule.
type Kill struct {
	Victim Victim
	// After is the share of the run's objects that are in the store before it.
	After float64
	// Delay passes between that moment and the kill.
	Delay time.Duration
	// Pick chooses among several processes of the victim's kind.
	Pick uint64
	// Life is Serving, Starting or Draining.
	Life Life
	// Pause lies between the birth of a successor, or a SIGTERM, and the kill.
	Pause time.Duration
}

// The last objects of a run are written within milliseconds of its end, and a
// kill has to come before that.
const (
	latest   = 0.95
	maxDelay = 250 * time.Millisecond
)

// Bounds of the pauses: a start and a drain take less on an idle machine.
const (
	maxStart = time.Second
	maxDrain = 500 * time.Millisecond
)

// Schedule draws the kills of one run, in order.
func (c Config) Schedule(run int) []Kill {
	kills := make([]Kill, c.Kills)
	for i := range kills {
		r := rl.Rand(rl.Seed(c.Seed, "chaos", uint64(run), uint64(i)))
		k := Kill{
			Victim: c.Victims[r.IntN(len(c.Victims))],
			After:  latest * r.Float64(),
			Delay:  time.Duration(r.Int64N(int64(maxDelay))),
			Pick:   r.Uint64(),
		}
		k.Life, k.Pause = life(r.IntN(5), r.Float64())
		if k.Victim.Name == Interpreter { // it has no start or drain of its own
			k.Life, k.Pause = Serving, 0
		}
		kills[i] = k
	}
	slices.SortStableFunc(kills, func(a, b Kill) int { return cmp.Compare(a.After, b.After) })
	return kills
}

// life chooses a stage of life: of five kills one meets a start and one a drain.
func life(choice int, share float64) (Life, time.Duration) {
	switch choice {
	case 0:
		return Starting, time.Duration(share * float64(maxStart))
	case 1:
		return Draining, time.Duration(share * float64(maxDrain))
	default:
		return Serving, 0
	}
}
