package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// The memory that a kernel shares with its owner:
//
//	0         stage, number of the cell of the record
//	8         record
//	cellAt    number, kind, bytes of code, limit of the value
//	codeAt    code, up to maxSource bytes
//
// The owner writes a cell and rings the bell, a socket pair; the kernel runs the
// cell, writes its record and rings back. The program can reach the bell and the memory,
// so a ring is only a hint to look, a record counts only with the number of the
// current cell, and an inconsistent record kills the kernel.
const (
	recordStart = 8
	cellAt      = 128 << 10
	codeAt      = cellAt + 16
)

// Kinds of a cell.
const (
	kindCode        = 0
	kindFixtureCode = 1
)

// kernelCPU is the RLIMIT_CPU of a kernel. Each cell has its own, smaller limit.
const kernelCPU = 24 * time.Hour

// Refused is the error of a StartKernel whose request is not acceptable.
type Refused struct{ Reason string }

// Error implements error.
func (e *Refused) Error() string { return "refused: " + e.Reason }

// Kernel is a confined program that keeps its variables from cell to cell. Between two
// cells it is stopped: its threads and timers do not run, and it uses only memory. It ends
// with the first cell whose status is neither ok nor error, with a cell that ends its
// process, and with its zygote.
//
// Its methods are safe for concurrent use; cells run one after the other.
type Kernel struct {
	zygote *zygote
	call   *call
	uid    uint32
	stdin  int      // a memory file, rewritten for each cell
	bell   *os.File // the owner's end
	rung   chan struct{}
	output [2]pipe
	owned  sync.WaitGroup // the listener at the bell

	mu      sync.Mutex // held by the running cell
	pid     int        // in this process's namespace, and its pidfd; -1 while unknown
	pidfd   int        //
	memory  int64      // its limit
	unready bool       // it will become a copy and has not stopped
	peak    int64      // largest resident size seen
	number  uint32     // of the current cell
	hasText bool       // stdin is not empty
	spent   bool
	closed  atomic.Bool
	once    sync.Once
}

// pipe is the owner's end of an output stream. The runtime's poller reads through file;
// reads that do not wait use fd, which file owns.
type pipe struct {
	file *os.File
	fd   int
}

// StartKernel returns a kernel that has run req.Fixture and has the memory limit of req.
// req.Code and req.History only select the zygote and are not run. It returns a *Refused,
// ErrDied when the zygote ended first, or ctx.Err().
func (in *Interpreter) StartKernel(ctx context.Context, req sandbox.Request) (*Kernel, error) {
	req.Limits = fill(req.Limits, in.jail.cfg.Defaults)
	if why := in.jail.Refuse(req); why != "" {
		return nil, &Refused{Reason: why}
	}
	if in.jail.cfg.Fresh != nil {
		return nil, &Refused{Reason: "sessions need a warm interpreter"}
	}
	z, err := in.choose(ctx, req)
	if err != nil {
		return nil, err
	}
	k := &Kernel{zygote: z, call: z.newCall(kindKernel), stdin: -1, pid: -1, pidfd: -1, rung: make(chan struct{}, 1)}
	if err := z.acquireSlot(k.call); err != nil {
		return nil, err
	}
	if err := k.start(ctx, req); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// start forks the kernel, waits until it is locked in, and runs the fixture.
func (k *Kernel) start(ctx context.Context, req sandbox.Request) error {
	k.uid = k.zygote.jail.uids.acquire()
	remote, err := k.open()
	defer func() {
		for _, fd := range remote {
			_ = unix.Close(fd) // the kernel has its copy; a failed close leaves nothing to do
		}
	}()
	if err == nil {
		life := sandbox.Limits{CPU: kernelCPU, Memory: req.Limits.Memory}
		err = k.zygote.send(k.call, k.uid, life, append([]int{k.call.slot.memory}, remote...))
	}
	if err != nil {
		k.call.fail(err) // it never was
		return err
	}
	if err := k.entered(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.identify()
	k.memory = req.Limits.Memory
	if req.Fixture == "" {
		if !k.unready {
			k.signal(unix.SIGSTOP)
		}
		return nil
	}
	res, err := k.cell(ctx, req, req.Fixture, kindFixtureCode, false)
	if err != nil {
		return err
	}
	if res.Status != sandbox.StatusOK {
		reason := strings.TrimPrefix(res.Reason, "fixture: ")
		if reason == "" {
			reason = fmt.Sprintf("ended with status %s, exit code %d", res.Status, res.ExitCode)
		}
		return &Refused{Reason: "fixture: " + reason}
	}
	return nil
}

// open makes the descriptors of a kernel and returns the ones for the kernel's side. The
// owner's ends close with the kernel.
func (k *Kernel) open() (remote []int, err error) {
	if k.stdin, err = memoryFile(nil, 0); err != nil {
		return nil, err
	}
	// The program may only read it, so that it cannot store data there.
	input, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", k.stdin), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, descriptorError("standard input", err)
	}
	remote = append(remote, input)
	for i := range k.output {
		var fds [2]int
		if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return remote, descriptorError("pipe", err)
		}
		remote = append(remote, fds[1])
		if k.output[i].file, err = pollable(fds[0], "output"); err != nil {
			return remote, err
		}
		k.output[i].fd = fds[0]
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return remote, descriptorError("bell", err)
	}
	remote = append(remote, fds[1])
	if k.bell, err = pollable(fds[0], "bell"); err != nil {
		return remote, err
	}
	k.owned.Go(k.listen)
	return remote, nil
}

// pollable gives fd to the runtime's poller.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// listen records each ring of the kernel until the other end of the bell is closed.
func (k *Kernel) listen() {
	var rings [16]byte
	for {
		if n, err := k.bell.Read(rings[:]); err != nil || n == 0 {
			return
		}
		select {
		case k.rung <- struct{}{}:
		default: // one is noted already
		}
	}
}

// entered waits until every layer of the kernel holds.
func (k *Kernel) entered(ctx context.Context) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-k.rung:
		return nil
	case <-k.call.ended:
		if k.call.err != nil {
			return k.call.err
		}
		return fmt.Errorf("the jail could not be entered %s", k.note())
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		k.zygote.kill() // it does not answer; serve fails all of its calls
		return fmt.Errorf("%w: no kernel within %v", ErrDied, patience)
	}
}

// identify opens a pidfd of the process, so that a cell needs nothing from the zygote. The
// process id may have been reused before the pidfd was open, so identify compares it once
// more. Without a pidfd the owner signals the kernel through the zygote.
func (k *Kernel) identify() {
	pid := k.call.hostPID()
	if pid <= 0 {
		return
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	used, ok := k.call.ask()
	ids, err := status(pid, "NSpid")
	if !ok || err != nil || !seenAs(ids, used.pid) {
		_ = unix.Close(pidfd) // of another process
		return
	}
	k.pid, k.pidfd = pid, pidfd
}

// signal sends a signal to the kernel from outside, where SIGSTOP cannot be refused.
func (k *Kernel) signal(sig unix.Signal) {
	if k.pidfd < 0 {
		k.call.signal(sig)
		return
	}
	// ESRCH means that the kernel has ended by itself.
	_ = unix.PidfdSendSignal(k.pidfd, sig, nil, 0)
}

// cpuTime returns the processor time that all threads of the kernel have used.
func (k *Kernel) cpuTime() time.Duration {
	if k.pid <= 0 {
		return k.call.cpuTime()
	}
	return processTime(k.pid)
}

// peakMemory returns the largest resident size of the kernel. Reading it takes as long as a
// short cell, so it is not read after one: a short cell cannot change it much.
func (k *Kernel) peakMemory(used time.Duration) int64 {
	if k.peak == 0 || used > time.Millisecond {
		k.peak = k.call.peakMemory()
	}
	return k.peak
}

// note returns the message of a kernel that could not be locked in.
func (k *Kernel) note() string {
	head := make([]byte, recordStart+1024)
	if _, err := unix.Pread(k.call.slot.memory, head, 0); err != nil || binary.LittleEndian.Uint32(head) != stageRefused {
		return ""
	}
	text, _, _ := strings.Cut(string(head[recordStart:]), "\x00")
	return strings.ToValidUTF8(text, "?")
}

// Run runs req.Code as the next cell and returns its result. Wall time, processor time and
// output are limited for each cell. The kernel is gone when the status is neither ok nor
// error, when the cell ended the process (see Spent), and when the error is not nil:
// ErrDied when the zygote or the kernel ended first, ErrStarved when the machine was too
// busy, or ctx.Err().
func (k *Kernel) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	req.Limits = fill(req.Limits, k.zygote.jail.cfg.Defaults)
	if why := k.zygote.jail.Refuse(req); why != "" {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: why}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cell(ctx, req, req.Code, kindCode, false)
}

// Replay runs req.Code as Run does and drops its output, which has no limit. The cell may
// take its time limits or least, whichever is larger, up to twice the largest limit of a
// call. Spent reports whether the cell ended the kernel.
func (k *Kernel) Replay(ctx context.Context, req sandbox.Request, least time.Duration) (sandbox.Result, error) {
	if len(req.Code) > maxSource || len(req.Stdin) > maxSource {
		return sandbox.Result{}, &Refused{Reason: fmt.Sprintf("a cell of the history is above the limit of %d bytes", maxSource)}
	}
	cfg := &k.zygote.jail.cfg
	req.Limits = fill(req.Limits, cfg.Defaults)
	req.Limits.Wall = min(max(req.Limits.Wall, least), 2*cfg.Most.Wall)
	req.Limits.CPU = min(max(req.Limits.CPU, least), 2*cfg.Most.CPU)
	req.Limits.Output = 1 << 10
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cell(ctx, req, req.Code, kindCode, true)
}

// Spent reports whether the last cell ended the kernel or met a limit.
func (k *Kernel) Spent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spent
}

// Done is closed when the process of the kernel is gone.
func (k *Kernel) Done() <-chan struct{} { return k.call.ended }

func (k *Kernel) alive() bool {
	select {
	case <-k.call.ended:
		return false
	default:
		return true
	}
}

// PID returns the process id of the kernel, or -1 when it is unknown.
func (k *Kernel) PID() int { return k.call.hostPID() }

// Close kills the kernel with all its processes and waits until they have ended.
func (k *Kernel) Close() {
	k.closed.Store(true)
	k.call.kill()
	k.once.Do(func() {
		k.mu.Lock() // a running cell notices the death and ends
		defer k.mu.Unlock()
		k.gone()
		files := []*os.File{k.bell, k.output[0].file, k.output[1].file}
		for _, file := range files {
			if file != nil {
				_ = file.Close() // no written data can be lost
			}
		}
		k.owned.Wait()
		for _, fd := range []int{k.stdin, k.pidfd} {
			if fd >= 0 {
				_ = unix.Close(fd) // only this process uses it; a failed close leaves nothing to do
			}
		}
		k.zygote.releaseSlot(k.call)
		if k.uid != 0 {
			k.zygote.jail.uids.recycle(k.uid)
		}
	})
}

// gone waits for the end of a killed kernel.
func (k *Kernel) gone() {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-k.call.ended:
	case <-timer.C:
		k.zygote.kill() // it does not answer; serve fails all of its calls
		<-k.call.ended
	}
}
