package jail

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// drainAfter is how long a program runs before its output is read as it comes.
// A shorter one leaves its output in the pipes, which are read when it is dead:
// that saves a call two goroutines and their wake-ups.
const drainAfter = 20 * time.Millisecond

// stop says why a program was stopped from outside.
type stop int

const (
	notStopped stop = iota
	stoppedByWall
	stoppedByCPU
	stoppedByFlood
	stoppedByContext
)

// watch enforces on one program what it cannot enforce on itself.
type watch struct {
	zygote *zygote
	call   *call
	limits sandbox.Limits
	files  *files
	timer  *time.Timer
	why    stop
	wall   time.Time // when the wall time is over; zero until the program starts
	cpu    time.Time // when to look at the processor time next
}

// supervise waits for the end of the program. When it returns, the program is dead.
func (z *zygote) supervise(ctx context.Context, c *call, limits sandbox.Limits, f *files) stop {
	w := &watch{zygote: z, call: c, limits: limits, files: f, timer: time.NewTimer(forkTimeout)}
	defer w.timer.Stop()
	started, cancelled := c.started, ctx.Done()
	for {
		select {
		case <-c.ended:
			return w.why
		case <-started:
			started = nil
			if w.why == notStopped {
				now := time.Now()
				w.wall, w.cpu = now.Add(limits.Wall), now.Add(limits.CPU)
				w.timer.Reset(min(drainAfter, limits.Wall, limits.CPU))
			}
		case <-cancelled:
			cancelled = nil
			w.halt(stoppedByContext)
		case <-f.flood:
			w.halt(stoppedByFlood)
		case <-w.timer.C:
			w.tick(time.Now())
		}
	}
}

// halt kills the program; the first reason counts.
func (w *watch) halt(reason stop) {
	if w.why != notStopped {
		return
	}
	w.why = reason
	w.call.kill()
	w.timer.Reset(exitTimeout)
}

// tick does what is due at now and sets the timer for what comes next.
func (w *watch) tick(now time.Time) {
	if w.why != notStopped || w.wall.IsZero() {
		w.zygote.kill() // it does not answer; serve fails all of its calls
		return
	}
	if !w.files.draining {
		w.files.drain()
	}
	if !now.Before(w.wall) {
		w.halt(stoppedByWall)
		return
	}
	if !now.Before(w.cpu) {
		left := w.limits.CPU - w.call.cpuTime()
		if left <= 0 {
			w.halt(stoppedByCPU)
			return
		}
		w.cpu = now.Add(max(left, time.Millisecond))
	}
	w.timer.Reset(min(w.wall.Sub(now), w.cpu.Sub(now)))
}

// cpuTime returns the processor time of the program so far, all threads
// together; zero when the kernel does not tell.
func (c *call) cpuTime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == 0 {
		c.pid = pidOf(c.pidfd)
	}
	if c.pid <= 0 {
		return 0
	}
	// The clock of a process is the complement of its id, tagged (clock_getcpuclockid(3)).
	var used unix.Timespec
	if unix.ClockGettime(int32(^c.pid<<3|2), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// pidOf returns the process id behind a pidfd as this process sees it, or -1.
func pidOf(pidfd int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return -1
	}
	_, rest, found := bytes.Cut(text, []byte("\nPid:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if !found || err != nil {
		return -1
	}
	return pid
}
