package jail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// Patience with a zygote that does not answer, after which it is killed.
const (
	forkTimeout = 30 * time.Second
	exitTimeout = 5 * time.Second
)

// call is one program in flight.
type call struct {
	started chan struct{}
	ended   chan struct{}

	mu    sync.Mutex
	pidfd int  // -1 until started
	pid   int  // looked up when needed; -1 when unknown
	dead  bool // killed by us; a start that comes later is killed at once
	exit  exit
	err   error
	once  sync.Once
}

func newCall() *call {
	return &call{started: make(chan struct{}), ended: make(chan struct{}), pidfd: -1}
}

func (c *call) start(pidfd int) {
	c.mu.Lock()
	c.pidfd = pidfd
	dead := c.dead
	c.mu.Unlock()
	close(c.started)
	if dead {
		c.kill()
	}
}

func (c *call) finish(e exit)  { c.once.Do(func() { c.exit = e; close(c.ended) }) }
func (c *call) fail(err error) { c.once.Do(func() { c.err = err; close(c.ended) }) }

// kill ends the program and, with it, everything in its pid namespace.
func (c *call) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	if c.pidfd >= 0 {
		// ESRCH means that it ended by itself.
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
	}
}

func (c *call) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
		c.pidfd = -1
		c.dead = true
	}
}

// run executes req, whose limits are complete, in a fresh child and returns its
// result. The error is ErrDied when the zygote ended first and ctx.Err() when
// ctx ended first; in both cases the program is dead.
func (z *zygote) run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	req.Limits = fill(req.Limits, z.jail.cfg.Defaults)
	if why := z.jail.Refuse(req); why != "" {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: why}, nil
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	files, err := openFiles(req)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer files.close()
	uid := z.jail.uids.take()
	defer z.jail.uids.give(uid)
	c := newCall()
	defer c.close()
	if err := z.send(c, opCall, uid, req.Limits, files.remote); err != nil {
		return sandbox.Result{}, err
	}
	files.closeRemote()
	stopped := z.supervise(ctx, c, req.Limits, files)
	if stopped == stoppedByContext {
		return sandbox.Result{}, ctx.Err()
	}
	if c.err != nil {
		return sandbox.Result{}, c.err
	}
	return files.result(req, c.exit, stopped)
}

// send asks for a child that gets the descriptors in remote.
func (z *zygote) send(c *call, op byte, uid uint32, limits sandbox.Limits, remote []int) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.err != nil {
		return z.err
	}
	z.next++
	id := z.next
	// The kernel's own limit counts in ticks and whole seconds: it is the backstop.
	seconds := uint32(limits.CPU/time.Second) + 2
	packet := callPacket(op, id, uid, seconds, uint64(z.base+limits.Memory))
	if _, _, err := z.ctl.WriteMsgUnix(packet, unix.UnixRights(remote...), nil); err != nil {
		return fmt.Errorf("%w: %w", ErrDied, err)
	}
	z.calls[id] = c
	return nil
}

// files are the descriptors of one call.
type files struct {
	memory   int
	recordAt int64
	size     int64
	remote   []int // what the child gets; memory is among them
	out, err *capture
	draining bool
	readers  sync.WaitGroup
	flood    chan struct{}
}

func openFiles(req sandbox.Request) (_ *files, err error) {
	f := &files{memory: -1, flood: make(chan struct{}, 2)}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	content, recordAt, size := callFile(req.Fixture, req.Code, req.Limits.Output)
	f.recordAt, f.size = recordAt, size
	if f.memory, err = memoryFile(content, size); err != nil {
		return nil, err
	}
	f.remote = append(f.remote, f.memory)
	for _, stream := range []**capture{&f.out, &f.err} {
		var fds [2]int
		if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
		f.remote = append(f.remote, fds[1])
		if err = unix.SetNonblock(fds[0], true); err != nil {
			return nil, errors.Join(fmt.Errorf("pipe: %w", err), unix.Close(fds[0]))
		}
		*stream = newCapture(fds[0], req.Limits.Output, f.flood)
	}
	if req.Stdin != "" {
		stdin, err := memoryFile([]byte(req.Stdin), int64(len(req.Stdin)))
		if err != nil {
			return nil, err
		}
		f.remote = append(f.remote, stdin)
	}
	return f, nil
}

// drain starts to read the output as it comes.
func (f *files) drain() {
	f.draining = true
	for _, c := range []*capture{f.out, f.err} {
		c.open()
		f.readers.Go(c.read)
	}
}

// collect reads what is left of the output of a dead program.
func (f *files) collect() {
	for _, c := range []*capture{f.out, f.err} {
		if f.draining {
			// The end of the stream is near; the deadline only matters where
			// processes can outlive their namespace. It fails when read has ended.
			_ = c.file.SetReadDeadline(time.Now().Add(time.Second))
		} else {
			c.sweep()
		}
	}
	f.readers.Wait()
}

// memoryFile returns an anonymous file with content, of the given size.
func memoryFile(content []byte, size int64) (int, error) {
	fd, err := unix.MemfdCreate("call", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("memory file: %w", err)
	}
	_, err = unix.Pwrite(fd, content, 0)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("memory file: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// closeRemote closes our copies of what the child has now.
func (f *files) closeRemote() {
	for _, fd := range f.remote {
		if fd != f.memory {
			_ = unix.Close(fd) // ours alone; a failed close leaves nothing to do
		}
	}
	f.remote = nil
}

func (f *files) close() {
	f.closeRemote()
	for _, c := range []*capture{f.out, f.err} {
		if c != nil {
			c.close()
		}
	}
	f.readers.Wait()
	if f.memory >= 0 {
		_ = unix.Close(f.memory) // as above
	}
}
