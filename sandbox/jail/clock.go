package jail

import (
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
)

// ErrStarved means that other processes kept the program from a core for so long that its
// wall time cannot be measured. The program is dead; the call can be made again.
var ErrStarved = errors.New("program starved")

// lookAgain is the pause before the next look at a program that may soon run
// or answer. The other two bound how often a program gets such a pause.
const (
	lookAgain   = 5 * time.Millisecond
	claimedTime = time.Second // after a program first claims that it has answered
	lostLooks   = 4           // looks that may fail to find the program
)

// A program over its wall limit is looked at looksPerLimit times in the length of
// that limit, but not more often than every shortestLook.
const (
	looksPerLimit = 20
	shortestLook  = 20 * time.Millisecond
)

// timeLimiter enforces the wall and CPU limits of a program. The wall time leaves out the
// time that the program waited for a core, since that depends on its neighbours: a program
// that sleeps or computes for longer than its limit is stopped, and a program that gets no
// core has more time, until bound.
//
// A program cannot stretch its time. Threads that take cores from each other use processor
// time, and a program that has used as much processor time as its wall limit is stopped.
type timeLimiter struct {
	limits sandbox.Limits
	bound  time.Duration // limit of the elapsed time, waits included
	look   func() threadStats
	due    time.Duration // when to look at the wall time next

	begun  time.Duration      // when the program began
	before map[int]schedTimes // times of its threads at begun
	waited time.Duration      // longest possible wait for a core since begun
	proven time.Duration      // wait for a core of a single thread since begun
	open   time.Duration      // observed part of a wait that has not ended
	looked bool               // at and cpu hold the values of the last look
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

// begin starts the wall time at elapsed.
func (c *timeLimiter) begin(elapsed time.Duration, now threadStats) {
	c.begun, c.before = elapsed, now.threads
}

// check takes the time since the fork and the processor time of a program. It returns why
// the program has to stop, or the time until the next check.
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

// extension returns the time until the wall limit or the next look, 0 at the limit, and the
// reason to report if the program has to stop now.
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

// note adds up the time that the program has waited for a core. The kernel counts the
// finished waits of each living thread. A program that waits now has waited since the last
// look for all the time in which it did not run.
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
	// Waits of several threads may overlap: their sum gives a program more time,
	// but does not prove that it starved.
	c.proven = max(c.proven+since, longest+c.open)
	c.waited = max(c.waited+since, c.proven, sum+c.open)
	c.looked, c.at, c.cpu = true, elapsed, cpu
}

// counted returns the wall time of a program that waited for a core for waited. The used
// processor time always counts, however long the threads waited.
func (c *timeLimiter) counted(elapsed, cpu, waited time.Duration) time.Duration {
	passed := elapsed - c.begun
	return max(passed-waited, min(cpu, passed))
}

// waits returns how long the threads of the program waited for a core: the longest wait,
// and the sum. The sum matters where one thread waits for another to end, so that their
// waits follow each other. It leaves out the time in which other threads of the program had
// a core: threads that compete with each other do not wait for other processes.
func (c *timeLimiter) waits(now threadStats, cpu time.Duration) (longest, sum time.Duration) {
	for id, thread := range now.threads {
		before := c.before[id]
		waited := thread.waited - before.waited
		longest = max(longest, waited)
		sum += max(0, waited-max(0, cpu-(thread.ran-before.ran)))
	}
	return longest, sum
}

// mayHaveEnded reports whether a program that claims to have answered, or that a look did
// not find, may have ended. Both signs can be false, so they count only for a moment.
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

// starved returns the error for a program that was stopped at the bound.
func (c *timeLimiter) starved() error {
	return fmt.Errorf("%w: it waited %v or more of %v for a core", ErrStarved, c.proven.Round(time.Millisecond), c.bound)
}
