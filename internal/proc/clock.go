package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clock measures for how long a starting process has stood still. On a busy
// machine a start may take minutes, and giving up then would only start over.
type clock struct {
	pid   int
	limit time.Duration

	begin, last time.Time
	busy        time.Duration // at last
	still       time.Duration // until last
}

// clockStretches is how often within its limit a clock looks at the process.
const clockStretches = 10

func startClock(pid int, limit time.Duration) *clock {
	now := time.Now()
	return &clock{pid: pid, limit: limit, begin: now, last: now}
}

func (c *clock) elapsed() time.Duration { return time.Since(c.begin) }

// expired reports whether the process stood still for limit since the clock was
// started, or was merely busy for much longer.
func (c *clock) expired() bool {
	// The system counts in steps, so that a short stretch says nothing.
	if now := time.Now(); now.Sub(c.last) >= c.limit/clockStretches {
		busy := busyTime(c.pid)
		c.still += max(0, now.Sub(c.last)-max(0, busy-c.busy)) // threads may be busy side by side
		c.last, c.busy = now, busy
	}
	return c.still >= c.limit || c.elapsed() >= maxStartFactor*c.limit
}

// busyTime is how long the threads of a process have run or waited for a
// processor; 0 where the system does not say.
func busyTime(pid int) time.Duration {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0 // the pattern is right
	}
	var sum time.Duration
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread ended
		}
		// Nanoseconds on a processor, nanoseconds in its queue, number of turns.
		for _, field := range bytes.Fields(data)[:min(2, len(bytes.Fields(data)))] {
			if n, err := strconv.ParseInt(string(field), 10, 64); err == nil {
				sum += time.Duration(n)
			}
		}
	}
	return sum
}
