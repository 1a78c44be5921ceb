package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"embed"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

//go:embed zygote/*.py
var sources embed.FS

// parts lists the files of the zygote in the order of their execution; they share one
// namespace.
var parts = [...]string{"base", "root", "compat", "program", "child", "kernel", "warm", "memory", "server"}

// zygoteSource returns the parts, separated by form feeds.
func zygoteSource() string {
	texts := make([]string, 0, len(parts))
	for _, name := range parts {
		text, err := sources.ReadFile("zygote/" + name + ".py")
		if err != nil {
			panic(err) // embedded: only a wrong name in parts can cause this
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "\f")
}

// startTimeout bounds the imports and the warm-up of a zygote.
const startTimeout = 60 * time.Second

// zygote is one warm interpreter. It is safe for concurrent use.
type zygote struct {
	jail  *Jail
	cmd   *exec.Cmd
	ctl   *net.UnixConn
	hello hello
	spawn bool  // its programs may start processes
	base  int64 // address space of the zygote alone, in bytes
	log   *tail

	mu     sync.Mutex
	calls  [maxInFlight]*call // by slot
	free   [2][]slot          // free slots that were used before, by kind
	next   [2]uint32          // number of slots made so far, by kind
	done   chan struct{}      // closed when the process is gone
	err    error              // why it is gone; valid after done
	killed atomic.Bool        // the owner has killed it
}

// start launches a zygote with the modules preloaded and waits until it is ready. With
// spawn, its programs may start processes.
func (j *Jail) start(ctx context.Context, preload []string, spawn bool) (*zygote, error) {
	setup, err := j.setup(preload, spawn)
	if err != nil {
		return nil, err
	}
	conn, remote, err := controlPair()
	if err != nil {
		return nil, err
	}
	z := &zygote{
		jail: j, spawn: spawn, ctl: conn, log: &tail{logger: j.cfg.Logger}, done: make(chan struct{}),
	}
	z.cmd = j.command(remote, z.log)
	err = startPlain(z.cmd)
	// The child has a copy. With this one open, the end of a child that dies before
	// its hello would stay unnoticed until the handshake times out.
	_ = remote.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s mode: %w", j.mode, err), conn.Close())
	}
	// It waits for its setup and has not forked yet.
	err = z.jail.group.add(z.pid())
	if err == nil {
		err = z.handshake(ctx, setup)
	}
	if err != nil {
		err = fmt.Errorf("%s mode: %w%s", j.mode, err, z.log.suffix())
		z.abandon()
		return nil, errors.Join(err, conn.Close())
	}
	go z.serve()
	return z, nil
}

func controlPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	local, remote := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer local.Close() //nolint:errcheck // FileConn uses a copy
	conn, err := net.FileConn(local)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("control socket: %w", err), remote.Close())
	}
	return conn.(*net.UnixConn), remote, nil
}

// bootArgs returns the arguments with which an interpreter runs the source in its first
// argument.
func bootArgs() []string {
	boot := "import sys\nfor part in sys.argv[1].split('\f'): exec(compile(part, '<zygote>', 'exec'))"
	return []string{"-s", "-S", "-B", "-X", "utf8", "-c", boot}
}

// command describes the process of a zygote: an empty environment, no inherited descriptor
// except the control socket, and new namespaces.
func (j *Jail) command(remote *os.File, log *tail) *exec.Cmd {
	cmd := exec.Command(j.py.Executable, append(bootArgs(), zygoteSource(), j.code.arena)...)
	cmd.Env = []string{
		"HOME=/tmp", "TMPDIR=/tmp", "LC_ALL=C.UTF-8", "TZ=UTC", "PATH=/usr/bin:/bin",
		// Resolve symbols before the fork instead of in every child.
		"PYTHONHASHSEED=0", "LD_BIND_NOW=1", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",
	}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{remote}
	cmd.Stderr = log
	attr := &syscall.SysProcAttr{Setsid: true}
	namespaces := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP)
	switch j.mode {
	case ModeRoot:
		attr.Cloneflags = namespaces
	case ModeUser:
		attr.Cloneflags = namespaces | unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	case ModePlain:
	}
	cmd.SysProcAttr = attr
	return cmd
}

// noRandomLayout is ADDR_NO_RANDOMIZE. Hash tables with identity keys iterate in the order
// of addresses, so equal answers need a fixed layout.
const noRandomLayout = 0x0040000

// startPlain starts cmd without address space randomization.
func startPlain(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	if errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_PERSONALITY, old|noRandomLayout, 0, 0)
	}
	err := cmd.Start()
	if errno == 0 {
		// Cannot fail: this restores the thread's previous value.
		_, _, _ = unix.Syscall(unix.SYS_PERSONALITY, old, 0, 0)
	}
	return err
}

// handshake sends the setup and waits for the hello.
func (z *zygote) handshake(ctx context.Context, setup []byte) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// A deadline in the past ends the read below; it cannot fail on an open socket.
		_ = z.ctl.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	if _, err := z.ctl.Write(setup); err != nil {
		return fmt.Errorf("send setup: %w", err)
	}
	buf := make([]byte, 64<<10)
	n, err := z.ctl.Read(buf)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
	if err != nil || n == 0 || buf[0] != opHello {
		return errors.New("ended before it was ready")
	}
	if err := json.Unmarshal(buf[1:n], &z.hello); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	z.base, err = addressSpace(z.cmd.Process.Pid)
	_ = setOOMScore(z.pid(), oomZygote) // without /proc the score stays unchanged
	return err
}

// addressSpace returns the size of a process's address space in bytes.
func addressSpace(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	pages, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/statm: %w", pid, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// abandon ends a zygote that never became ready.
func (z *zygote) abandon() {
	_ = z.cmd.Process.Kill() // it may be gone already
	_ = z.cmd.Wait()         // its exit status adds nothing
	close(z.done)
}

// serve reads the packets of the zygote until it is gone, then fails its calls.
func (z *zygote) serve() {
	buf := make([]byte, 4096)
	for {
		n, err := z.ctl.Read(buf)
		if err != nil || n == 0 {
			break
		}
		r, err := parseReport(buf[:n])
		if err != nil || r.slot >= maxInFlight {
			break
		}
		z.dispatch(r)
	}
	_ = z.cmd.Process.Kill() // it is gone already, or does not respond
	_ = z.cmd.Wait()         // its ProcessState says how it ended
	_ = z.ctl.Close()        // no packet follows
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err = fmt.Errorf("%w: %s%s%s", ErrDied, z.cmd.ProcessState, z.cause(), z.log.suffix())
	close(z.done) // first: a caller whose call fails must find the zygote gone
	for _, c := range z.calls {
		if c != nil {
			c.fail(z.err)
		}
	}
	for _, free := range z.free {
		for _, s := range free {
			s.close()
		}
	}
	z.free = [2][]slot{}
}

func (z *zygote) dispatch(r report) {
	z.mu.Lock()
	c := z.calls[r.slot]
	z.mu.Unlock()
	if c == nil {
		return
	}
	switch r.op {
	case opTimes:
		c.replyTimes(r.times())
	case opFailed:
		c.fail(forkError(unix.Errno(-r.value)))
	case opExited:
		c.finish(z.jail.explain(r.exit(), c))
	}
}

// ErrNoProcess means that the machine, or the bound of all programs together, allows no
// further process. It comes with a sandbox.ErrOverloaded.
var ErrNoProcess = errors.New("no process is left")

// forkError returns the error for a child that could not be made.
func forkError(errno unix.Errno) error {
	if errno == unix.EAGAIN {
		return fmt.Errorf("%w: %w", &sandbox.Overloaded{Detail: "programs that run use all processes and threads there may be", RetryAfter: time.Second}, ErrNoProcess)
	}
	return fmt.Errorf("fork a sandbox child: %w", errno)
}

// slot is a place for a child. One child after the other uses its memory file.
type slot struct {
	number uint32
	memory int
}

func (s slot) close() { _ = unix.Close(s.memory) } // anonymous memory; nothing to lose

// acquireSlot gives c a slot, until releaseSlot. Calls use the lowest slots and kernels the
// highest: the fork loop searches for an ended child from the first slot on, and kernels
// live long.
func (z *zygote) acquireSlot(c *call) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.err != nil {
		return z.err
	}
	free, next := &z.free[c.kind], &z.next[c.kind]
	if n := len(*free); n > 0 {
		c.slot = (*free)[n-1]
		*free = (*free)[:n-1]
	} else {
		if z.next[kindCall]+z.next[kindKernel] == maxInFlight {
			return fmt.Errorf("%d programs run on one interpreter", maxInFlight)
		}
		memory, err := memoryFile(nil, windowSize)
		if err != nil {
			return err
		}
		c.slot = slot{number: *next, memory: memory}
		if c.kind == kindKernel {
			c.slot.number = maxInFlight - 1 - *next
		}
		*next++
	}
	z.calls[c.slot.number] = c
	return nil
}

// releaseSlot takes the slot back; its child is dead or was never made. It clears the
// memory that the child wrote, so that the next child does not see it.
func (z *zygote) releaseSlot(c *call) {
	c.mu.Lock()
	c.sent = false
	c.mu.Unlock()
	err := unix.Fallocate(c.slot.memory, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, windowSize)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.calls[c.slot.number] = nil
	if z.err == nil && err == nil {
		z.free[c.kind] = append(z.free[c.kind], c.slot)
		return
	}
	c.slot.close() // a slot that cannot be cleared is not used again
}

func (z *zygote) alive() bool {
	select {
	case <-z.done:
		return false
	default:
		return true
	}
}

// pid returns the process id of the zygote.
func (z *zygote) pid() int { return z.cmd.Process.Pid }

// cpu returns the processor time of the zygote and of its finished calls, or zero when it
// is gone. The kernel counts it in ticks of 10 ms.
func (z *zygote) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", z.pid()))
	if err != nil {
		return 0
	}
	return statTime(text)
}

// userHZ is the unit of /proc times, the same on every machine Go runs on.
const userHZ = 100

// close kills the zygote with all its children and waits for its end.
func (z *zygote) close() {
	z.kill()
	<-z.done
}

func (z *zygote) kill() {
	z.killed.Store(true)
	_ = z.cmd.Process.Kill() // serve notices the end of the socket; the process may be gone already
}

// tail keeps the last output of a zygote and passes it on to the log.
type tail struct {
	logger interface {
		Warn(msg string, args ...any)
	}
	mu   sync.Mutex
	last string
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	if line := lastLine(string(p)); line != "" {
		t.mu.Lock()
		t.last = line
		t.mu.Unlock()
		t.logger.Warn("sandbox interpreter wrote", "text", line)
	}
	return len(p), nil
}

func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == "" {
		return ""
	}
	return ": " + t.last
}
