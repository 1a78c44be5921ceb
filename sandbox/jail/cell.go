package jail

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// cell is one piece of code that runs in a kernel.
type cell struct {
	kernel   *Kernel
	limits   sandbox.Limits
	output   [2]*capture
	flood    chan struct{}
	draining bool
	answered bool
	fixture  bool
	readers  sync.WaitGroup
	timer    *time.Timer
	clock    *timeLimiter
	share    *cpuShare
	why      stop
	start    time.Time
	used     time.Duration // processor time of the kernel before the cell
}

// cell runs code as the next cell. The limits of req are complete and the caller holds mu.
// When it returns, the kernel is either in the state that its history gives or dead.
func (k *Kernel) cell(ctx context.Context, req sandbox.Request, code string, kind uint32, unbounded bool) (sandbox.Result, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	if !k.alive() {
		return sandbox.Result{}, fmt.Errorf("%w: the kernel has ended", ErrDied)
	}
	c := &cell{kernel: k, limits: req.Limits, fixture: kind == kindFixtureCode, flood: make(chan struct{}, 2)}
	c.clock = newTimeLimiter(req.Limits, k.zygote.jail.cfg.slack, c.look)
	c.share = newCPUShare(ctx, k.call)
	for i := range c.output {
		c.output[i] = newCapture(-1, req.Limits.Output, c.flood)
		if unbounded {
			c.output[i].bound = math.MaxInt64
		}
	}
	res := sandbox.Result{ID: req.ID}
	err := k.put(code, req.Stdin, kind, min(req.Limits.Output, valueMax))
	if err == nil {
		err = c.outcome(ctx, &res)
	}
	k.spent = err == nil && (!c.answered || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError)
	if k.alive() && (err != nil || k.spent) {
		k.call.kill()
		k.gone()
	}
	if err != nil {
		return sandbox.Result{}, err
	}
	res.Stdout, res.Stderr = c.output[0].text(), c.output[1].text()
	return res, nil
}

// outcome runs the cell and fills in its result.
func (c *cell) outcome(ctx context.Context, res *sandbox.Result) error {
	c.run(ctx)
	switch {
	case c.why == stoppedByContext:
		return ctx.Err()
	case c.why == stoppedByStarvation && c.kernel.call.err == nil:
		return c.clock.starved()
	case c.answered:
		return c.read(res)
	default:
		return c.resultOfDead(res)
	}
}

// put writes the cell into the memory that the kernel reads.
func (k *Kernel) put(code, stdin string, kind uint32, limit int64) error {
	k.number++
	b := make([]byte, 0, codeAt-cellAt+len(code))
	for _, v := range []uint32{k.number, kind, uint32(len(code)), uint32(limit)} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	if _, err := unix.Pwrite(k.call.slot.memory, append(b, code...), cellAt); err != nil {
		return fmt.Errorf("write a cell: %w", err)
	}
	if stdin == "" && !k.hasText {
		return nil
	}
	k.hasText = stdin != ""
	err := unix.Ftruncate(k.stdin, 0)
	if err == nil {
		_, err = unix.Pwrite(k.stdin, []byte(stdin), 0)
	}
	if err != nil {
		return fmt.Errorf("write standard input: %w", err)
	}
	return nil
}

// run rings the bell and waits until the kernel has answered and stopped again, or is dead.
// The captures then hold everything that the cell printed.
func (c *cell) run(ctx context.Context) {
	k := c.kernel
	c.used = k.cpuTime()
	c.start = time.Now()
	// The first tick starts the clock, so it comes before any wall limit.
	c.timer = time.NewTimer(min(drainAfter, c.limits.Wall/2, c.limits.CPU))
	defer c.timer.Stop()
	_, _ = k.bell.Write([]byte{1}) // fails when the kernel is gone; the wait below notices that
	k.signal(unix.SIGCONT)
	c.answered = c.wait(ctx)
	if c.answered {
		k.signal(unix.SIGSTOP)
	}
	c.collect()
}

func (c *cell) wait(ctx context.Context) (answered bool) {
	cancelled := ctx.Done()
	for {
		select {
		case <-c.kernel.call.ended:
			return false
		case <-c.kernel.rung:
			if c.why == notStopped {
				return true
			}
		case <-cancelled:
			cancelled = nil
			c.halt(stoppedByContext)
		case <-c.flood:
			c.halt(stoppedByFlood)
		case <-c.timer.C:
			c.tick(time.Now())
		}
	}
}

// halt kills the kernel; the first reason counts.
func (c *cell) halt(reason stop) {
	if c.why != notStopped {
		return
	}
	c.why = reason
	c.kernel.call.kill()
	c.timer.Reset(patience)
}

// tick checks the limits at now and sets the timer for the next check.
func (c *cell) tick(now time.Time) {
	if c.why != notStopped {
		c.kernel.zygote.kill() // it does not answer; serve fails all of its calls
		return
	}
	elapsed := now.Sub(c.start)
	if !c.draining {
		c.drain()
		// The threads may have waited for a core in earlier cells, and the kernel's
		// counters do not separate the cells: the time until here does not count.
		c.clock.begin(elapsed, c.look())
	}
	used := c.kernel.cpuTime() - c.used
	why, next := c.clock.check(elapsed, used)
	if why != notStopped {
		c.halt(why)
		return
	}
	c.timer.Reset(min(next, c.share.check(elapsed, used, c.look)))
}

// look returns the state of the kernel's threads. The kernel may already have answered
// while the owner itself waits for a core.
func (c *cell) look() threadStats {
	k := c.kernel
	now := threads(k.PID())
	var head [8]byte
	if _, err := unix.Pread(k.call.slot.memory, head[:], 0); err == nil {
		now.answered = binary.LittleEndian.Uint32(head[:]) == stageFinished && binary.LittleEndian.Uint32(head[4:]) == k.number
	}
	return now
}

// drain starts goroutines that read the output while the cell runs.
func (c *cell) drain() {
	c.draining = true
	for i, out := range c.output {
		c.readers.Go(func() { c.follow(out, c.kernel.output[i].file) })
	}
}

// follow reads a stream until it ends, a deadline passes, or it exceeds its bound.
func (c *cell) follow(out *capture, file *os.File) {
	buf := make([]byte, 8<<10)
	for {
		n, err := file.Read(buf)
		out.add(buf[:n])
		if out.total > out.bound {
			out.flooded = true
			c.flood <- struct{}{} // has room for both streams
			return
		}
		if err != nil {
			return
		}
	}
}

// collect reads the remaining output when the cell has ended.
func (c *cell) collect() {
	if c.draining {
		deadline := time.Now()
		if !c.answered {
			// The stream ends soon. The deadline matters only where
			// processes can outlive their namespace.
			deadline = deadline.Add(time.Second)
		}
		// Deadlines cannot be refused on an open pipe.
		for _, p := range c.kernel.output {
			_ = p.file.SetReadDeadline(deadline)
		}
		c.readers.Wait()
		for _, p := range c.kernel.output {
			_ = p.file.SetReadDeadline(time.Time{})
		}
	}
	for i, out := range c.output {
		out.takeFrom(c.kernel.output[i].fd)
	}
}

// takeFrom reads the bytes that a pipe holds, without waiting.
func (c *capture) takeFrom(fd int) {
	var buf [4 << 10]byte
	for c.total <= c.bound {
		n, err := unix.Read(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		c.add(buf[:n])
	}
	c.flooded = true
}

// read decodes the answer of a living kernel.
func (c *cell) read(res *sandbox.Result) error {
	k := c.kernel
	res.Usage = sandbox.Usage{Wall: time.Since(c.start), CPU: max(k.cpuTime()-c.used, 0)}
	res.Usage.PeakMemory = k.peakMemory(res.Usage.CPU)
	if c.flooded(res) {
		return nil
	}
	left := make([]byte, 4<<10)
	if _, err := unix.Pread(k.call.slot.memory, left, 0); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	u32 := binary.LittleEndian.Uint32
	if u32(left) != stageFinished || u32(left[4:]) != k.number {
		spoiled(res, "rang for a cell that had not ended")
		return nil
	}
	r, err := parseRecord(left[recordStart:])
	if err != nil { // longer, or malformed
		left = make([]byte, cellAt)
		if _, err := unix.Pread(k.call.slot.memory, left, 0); err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
		r, err = parseRecord(left[recordStart:])
	}
	if err != nil {
		spoiled(res, err.Error())
		return nil
	}
	res.ExitCode = r.code & 0xff
	apply(res, r, c.fixture)
	return nil
}

// resultOfDead fills in the result of a cell that ended its kernel.
func (c *cell) resultOfDead(res *sandbox.Result) error {
	call := c.kernel.call
	if call.err != nil {
		return call.err
	}
	if c.kernel.closed.Load() {
		return fmt.Errorf("%w: the kernel was closed", ErrDied)
	}
	e := call.exit
	e.cpu = max(e.cpu-c.used, 0)
	res.Usage = sandbox.Usage{Wall: time.Since(c.start), CPU: e.cpu, PeakMemory: e.peak}
	res.ExitCode = 128 + int(unix.SIGKILL)
	switch {
	case c.flooded(res):
	case c.why == stoppedByWall:
		res.Status = sandbox.StatusTimeLimit
		res.Reason = fmt.Sprintf("wall time limit of %v", c.limits.Wall)
	case c.why == stoppedByCPU:
		cpuLimit(res, c.limits)
	case e.status.Signaled():
		signaled(res, e, c.limits)
	default: // it called os._exit
		left{stage: stageEntered}.exited(res, e.status.ExitStatus())
	}
	return nil
}

func (c *cell) flooded(res *sandbox.Result) bool {
	if !c.output[0].flooded && !c.output[1].flooded {
		return false
	}
	res.Status = sandbox.StatusOutputLimit
	res.Reason = fmt.Sprintf("wrote more than %d bytes", c.output[0].bound)
	res.ExitCode = 128 + int(unix.SIGKILL)
	return true
}

// spoiled fills in the result of a program that wrote to the bell or the memory of its
// kernel.
func spoiled(res *sandbox.Result, why string) {
	res.Status = sandbox.StatusKilled
	res.Reason = "disturbed its kernel: " + why
	res.ExitCode = 128 + int(unix.SIGKILL)
}
