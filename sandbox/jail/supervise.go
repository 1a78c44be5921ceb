package jail

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// drainAfter is how long a program runs before the owner reads its output. A shorter
// program leaves its output in the pipes, which are read after its death: that saves a call
// two goroutines and their wake-ups.
const drainAfter = 20 * time.Millisecond

// stop says why a program was stopped from outside.
type stop int

const (
	notStopped stop = iota
	stoppedByWall
	stoppedByCPU
	stoppedByFlood
	stoppedByContext
	stoppedByStarvation
	stoppedByMemory // all processes of the program together
)

// watch enforces the limits that a program cannot enforce on itself.
type watch struct {
	call  *call
	files *files
	clock *timeLimiter
	share *cpuShare
	timer *time.Timer
	known times // at the last tick
	why   stop

	wake      <-chan struct{} // not nil while the program is paused; closed to resume it
	pausedAt  time.Time
	pausedFor time.Duration // total time of finished pauses

	memory  int64         // limit for all processes of the program together
	treeCPU time.Duration // largest observed processor time of all processes
}

// supervise waits for the end of the program. When it returns, the program is dead. It
// returns an error only for a program that was stopped because it starved.
func (z *zygote) supervise(ctx context.Context, c *call, limits sandbox.Limits, f *files) (stop, error) {
	first := min(drainAfter, limits.Wall, limits.CPU)
	w := &watch{call: c, files: f, timer: time.NewTimer(first), memory: limits.Memory}
	w.clock = newTimeLimiter(limits, z.jail.cfg.slack, w.look)
	w.share = newCPUShare(ctx, c)
	defer w.timer.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case <-c.ended:
			c.pausedFor = w.pausedFor
			c.exit.cpu = max(c.exit.cpu, w.treeCPU)
			if w.why == stoppedByStarvation {
				return w.why, w.clock.starved()
			}
			return w.why, nil
		case <-cancelled:
			cancelled = nil
			w.halt(stoppedByContext)
		case <-f.flood:
			w.halt(stoppedByFlood)
		case <-w.timer.C:
			w.tick()
		case <-w.wake:
			w.resume()
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
	w.timer.Reset(patience)
}

// tick checks a running program and sets the timer for the next check. The limits count
// from the fork, whose time only the zygote knows.
func (w *watch) tick() {
	if w.why != notStopped {
		w.call.zygote.kill() // it does not end; serve fails all calls of the zygote
		return
	}
	if !w.files.draining {
		w.files.drain()
	}
	used, ok := w.call.ask()
	if !ok {
		select {
		case <-w.call.ended:
		default:
			w.call.zygote.kill() // it does not answer
		}
		w.timer.Reset(patience)
		return
	}
	if w.call.zygote.spawn && w.addTree(&used) {
		w.halt(stoppedByMemory)
		return
	}
	w.known = used
	elapsed := used.wall - w.pausedFor
	why, next := w.clock.check(elapsed, used.cpu)
	if why != notStopped {
		w.halt(why)
		return
	}
	if w.call.zygote.spawn {
		// SIGSTOP would stop only the first process, so such a program is never paused.
		w.timer.Reset(min(next, spawnLook))
		return
	}
	next = min(next, w.share.check(elapsed, used.cpu, w.look))
	if w.share.resume != nil {
		w.pause(w.share.resume)
		w.share.resume = nil
		return
	}
	w.timer.Reset(next)
}

// pause stops the program, without counting the time, until wake is closed.
func (w *watch) pause(wake <-chan struct{}) {
	w.wake, w.pausedAt = wake, time.Now()
	w.call.signal(unix.SIGSTOP)
}

// resume continues a paused program.
func (w *watch) resume() {
	w.wake = nil
	w.pausedFor += time.Since(w.pausedAt)
	w.call.signal(unix.SIGCONT)
	if w.why == notStopped {
		w.timer.Reset(shortestLook)
	}
}

// look returns the state of the threads of the program.
func (w *watch) look() threadStats {
	pid := w.call.findPID(w.known.pid)
	now := threads(pid)
	if w.call.zygote.spawn && pid > 0 && now.threads != nil {
		now = treeThreads(pid)
	}
	if begun := w.files.begun(); begun > 0 {
		now.begun = begun - w.known.fork
	} else {
		now.entering = true
	}
	return now
}
