package jail

import (
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
)

// ErrStarved means that others kept the program from a core for so long that
// nobody can say whether it keeps its wall limit. The program is dead; the call can
// be made again.
var ErrStarved = errors.New("program starved")

// lookAgain is the pause before the next look at a program that may be about to run
// or to answer. The other two bound how often that can be repeated.
const (
	lookAgain   = 5 * time.Millisecond
	claimedTime = time.Second // after a program first claims that it has answered
	lostLooks   = 4           // that do not find the program
)

// A program that runs over its limit is looked at so often in the time of its limit,
// and at most every shortestLook.
const (
	looksPerLimit = 20
	shortestLook  = 20 * time.Millisecond
)

// clock holds a program to its wall and CPU limits. The wall time leaves out what
// the program waited for a core, since that depends on its neighbours: a program
// that sleeps or computes for longer than its limit is stopped, and one that is
// kept from running gets more time, until bound.
//
// A program cannot stretch its own clock. Threads that take the cores from each
// other use processor time, and a program that has used as much of that as its wall
// limit is over.
type timeLimiter struct {
	limits sandbox.Limits
	bound  time.Duration // of all the time that passes
	look   func() threadStats
	due    time.Duration // when to look at the wall time next

	begun  time.Duration      // when the program began
	before map[int]schedTimes // of its threads by then
	waited time.Duration      // for a core since then, in the program's favour
	proven time.Duration      // for a core since then, by one thread
	open   time.Duration      // of these, the wait that has not ended, as far as it was seen
	looked bool               // the next two are of the last look
	at     time.Duration
	cpu    time.Duration
	claim  time.Duration // when the program first claimed to have answered
	lost   int           // looks that did not find the program
}

func newTimeLimiter(limits sandbox.Limits, slack time.Duration, look func() threadStats) *timeLimiter {
	return &timeLimiter{
		limits: limits, bound: limits.Wall + max(sandbox.SlackFactor*limits.Wall, slack), look: look, due: limits.Wall,
	}
}

// begin leaves out what has passed until now.
func (c *timeLimiter) begin(elapsed time.Duration, now threadStats) {
	c.begun, c.before = elapsed, now.threads
}

// check returns why a program has to stop that has run for elapsed and used cpu, or
// the time until the next check.
func (c *timeLimiter) check(elapsed, cpu time.Duration) (stop, time.Duration) {
	if cpu >= c.limits.CPU {
		return stoppedByCPU, 0
	}
	if elapsed >= c.due {
		more, why := c.extension(elapsed, cpu)
		if more == 0 || elapsed >= c.bound {
			return why, 0
		}
		c.due = min(elapsed+more, c.bound)
	}
	// With one thread the processor time cannot pass its limit any sooner; with
	// more threads the next check sees it a little late.
	return notStopped, max(time.Millisecond, min(c.due-elapsed, c.limits.CPU-cpu))
}

// extension returns the time that a program has left, or in which to look again, 0
// when it has had its limit; and why it is stopped if it may not have more.
func (c *timeLimiter) extension(elapsed, cpu time.Duration) (more time.Duration, why stop) {
	now := c.look()
	switch {
	case now.entering:
		c.begin(elapsed, now)
		return c.limits.Wall, stoppedByStarvation
	case now.ended:
		return lookAgain, stoppedByStarvation
	case c.mayHaveEnded(now, elapsed):
		return lookAgain, stoppedByWall
	}
	c.begun = max(c.begun, now.begun)
	// The kernel counts a wait when it ends. One that began before the last look may
	// be long; a program that has run since then is in a short one.
	unknown := now.waiting && cpu < c.limits.Wall && !(c.looked && cpu > c.cpu)
	c.note(now, elapsed, cpu)
	why = stoppedByStarvation
	if c.counted(elapsed, cpu, c.proven) >= c.limits.Wall {
		why = stoppedByWall
	}
	left := c.limits.Wall - c.counted(elapsed, cpu, c.waited)
	switch {
	case left > 0:
		return min(left, max(c.limits.Wall/looksPerLimit, shortestLook)), why
	case unknown:
		return lookAgain, stoppedByStarvation
	default:
		return 0, stoppedByWall
	}
}

// note adds up what the program has waited for a core. The kernel knows it of each
// living thread, but for a wait that has not ended. A program that waits now has
// waited since the last look for as long as it has not run.
func (c *timeLimiter) note(now threadStats, elapsed, cpu time.Duration) {
	var since time.Duration
	if c.looked && now.waiting {
		since = max(0, elapsed-c.at-(cpu-c.cpu))
	}
	if cpu > c.cpu || !now.waiting {
		c.open = 0
	}
	c.open += since
	longest, sum := c.waits(now, cpu)
	// Waits of several threads may lie over each other, so that their sum gives a
	// program time but no excuse.
	c.proven = max(c.proven+since, longest+c.open)
	c.waited = max(c.waited+since, c.proven, sum+c.open)
	c.looked, c.at, c.cpu = true, elapsed, cpu
}

// counted is the wall time of a program that waited for a core for so long. One that
// has used processor time has had that, however long its threads waited.
func (c *timeLimiter) counted(elapsed, cpu, waited time.Duration) time.Duration {
	passed := elapsed - c.begun
	return max(passed-waited, min(cpu, passed))
}

// waits returns how long the threads of the program waited for a core: the longest,
// and the sum. Where one thread waits for another to end, their waits for a core
// follow each other. The sum leaves out the time in which other threads of the
// program had a core: what they take from each other is not a wait for others.
func (c *timeLimiter) waits(now threadStats, cpu time.Duration) (longest, sum time.Duration) {
	for id, thread := range now.threads {
		before := c.before[id]
		waited := thread.waited - before.waited
		longest = max(longest, waited)
		sum += max(0, waited-max(0, cpu-(thread.ran-before.ran)))
	}
	return longest, sum
}

// about reports whether a program that claims to have answered, or was not found, may
// have ended: its word, and a listing of processes that come and go, count for a
// moment only.
func (c *timeLimiter) mayHaveEnded(now threadStats, elapsed time.Duration) bool {
	if now.answered {
		if c.claim == 0 {
			c.claim = elapsed
		}
		return elapsed-c.claim < claimedTime
	}
	if now.threads == nil {
		c.lost++
		return c.lost < lostLooks
	}
	return false
}

// starved is the error of a program that was stopped at the bound.
func (c *timeLimiter) starved() error {
	return fmt.Errorf("%w: it waited %v or more of %v for a core", ErrStarved, c.proven.Round(time.Millisecond), c.bound)
}
