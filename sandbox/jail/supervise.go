package jail

import (
	"context"
	"time"

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
	call   *call
	limits sandbox.Limits
	files  *files
	timer  *time.Timer
	why    stop
}

// supervise waits for the end of the program. When it returns, the program is dead.
func (z *zygote) supervise(ctx context.Context, c *call, limits sandbox.Limits, f *files) stop {
	first := min(drainAfter, limits.Wall, limits.CPU)
	w := &watch{call: c, limits: limits, files: f, timer: time.NewTimer(first)}
	defer w.timer.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case <-c.ended:
			return w.why
		case <-cancelled:
			cancelled = nil
			w.halt(stoppedByContext)
		case <-f.flood:
			w.halt(stoppedByFlood)
		case <-w.timer.C:
			w.tick()
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

// tick looks at a program that is still there and sets the timer for the next look.
// The limits count from the fork, which only the zygote knows.
func (w *watch) tick() {
	if w.why != notStopped {
		w.call.zygote.kill() // it does not end; serve fails all calls of the zygote
		return
	}
	if !w.files.draining {
		w.files.drain()
	}
	used, ok := w.call.ask(forkTimeout)
	if !ok {
		select {
		case <-w.call.ended:
		default:
			w.call.zygote.kill() // it does not answer
		}
		w.timer.Reset(exitTimeout)
		return
	}
	switch {
	case used.wall >= w.limits.Wall:
		w.halt(stoppedByWall)
	case used.cpu >= w.limits.CPU:
		w.halt(stoppedByCPU)
	default:
		// With one thread the processor time cannot pass its limit any sooner; with
		// more it is seen a little late.
		w.timer.Reset(max(time.Millisecond, min(w.limits.Wall-used.wall, w.limits.CPU-used.cpu)))
	}
}
