package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// patience bounds how long a zygote may take to answer, and a killed child to end. After it
// the owner kills the zygote with all its children. Both need a core, which a busy machine
// may grant late.
const patience = 30 * time.Second

// call is one child in flight.
type call struct {
	zygote     *zygote
	slot       slot
	kind       uint32
	ended      chan struct{}
	timesReply chan times // the reply to ask

	exit exit  // valid after ended, with err
	err  error // why there is no exit
	once sync.Once

	mu     sync.Mutex
	sent   bool // the zygote knows the child; false again when the slot is given back
	killed bool // we have killed it
	pid    int  // as this process sees it; 0 until looked up

	pausedFor time.Duration // total time stopped; only the watching goroutine uses this and the fields below

	nice  int // of its threads
	score int // OOM score of its process
}

func (z *zygote) newCall(kind uint32) *call {
	return &call{zygote: z, kind: kind, ended: make(chan struct{}), timesReply: make(chan times, 1)}
}

func (c *call) finish(e exit)  { c.once.Do(func() { c.exit = e; close(c.ended) }) }
func (c *call) fail(err error) { c.once.Do(func() { c.err = err; close(c.ended) }) }

func (c *call) replyTimes(t times) {
	select {
	case c.timesReply <- t:
	default: // an unread reply is still in the channel
	}
}

// kill ends the program and, with it, everything in its pid namespace.
func (c *call) kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.signal(unix.SIGKILL)
}

// signal reaches the first process of the program's namespace from outside, where
// SIGSTOP and SIGKILL cannot be refused.
func (c *call) signal(sig unix.Signal) {
	p := slotPacket(opKill, c.slot.number)
	p.put(packetSignal, uint64(sig))
	c.request(p)
}

// request sends a packet about the child; the zygote ignores it when the child has ended.
func (c *call) request(p *packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		// An error means that the zygote is gone, which ends the call too.
		_, _ = c.zygote.ctl.Write(p[:])
	}
}

// ask returns how long the program has run; false when it has ended or the zygote
// does not answer in time.
func (c *call) ask() (times, bool) {
	select {
	case <-c.timesReply: // a late reply to an earlier ask
	default:
	}
	c.request(slotPacket(opTimes, c.slot.number))
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case t := <-c.timesReply:
		return t, true
	case <-c.ended:
	case <-timer.C:
	}
	return times{}, false
}

// run executes req, whose limits are complete, in a fresh child and returns its result. It
// returns ErrDied when the zygote ended first, ErrStarved when the machine was too busy,
// and ctx.Err() when ctx ended first; in all three cases the program is dead.
func (z *zygote) run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	req.Limits = fill(req.Limits, z.jail.cfg.Defaults)
	if why := z.jail.Refuse(req); why != "" {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: why}, nil
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	preamble := z.jail.preambles.find(ctx, z, req)
	c := z.newCall(kindCall)
	var err error
	if err = z.acquireSlot(c); err != nil {
		return sandbox.Result{}, err
	}
	defer z.releaseSlot(c)
	files, err := openFiles(req, c.slot.memory, preamble)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer files.close()
	uid := z.jail.uids.acquire()
	defer z.jail.uids.recycle(uid)
	if err := z.send(c, uid, req.Limits, files.remote); err != nil {
		return sandbox.Result{}, err
	}
	files.closeRemote()
	stopped, starved := z.supervise(ctx, c, req.Limits, files)
	switch {
	case stopped == stoppedByContext:
		return sandbox.Result{}, ctx.Err()
	case c.err != nil:
		return sandbox.Result{}, c.err
	case starved != nil:
		return sandbox.Result{}, starved
	}
	e := c.exit
	e.wall = max(0, e.wall-c.pausedFor)
	return files.result(req, e, stopped)
}

// Kinds of children.
const (
	kindCall   = 0
	kindKernel = 1
)

// send asks the zygote for the child of c, which gets the descriptors in remote.
func (z *zygote) send(c *call, uid uint32, limits sandbox.Limits, remote []int) error {
	// The kernel's own limit counts in ticks and whole seconds: it is the backstop.
	seconds := uint64(limits.CPU/time.Second) + 2
	packet := callPacket(c.kind, c.slot.number, uid, seconds, uint64(z.base+limits.Memory))
	if _, _, err := z.ctl.WriteMsgUnix(packet[:], unix.UnixRights(remote...), nil); err != nil {
		return fmt.Errorf("%w: %w", ErrDied, err)
	}
	c.mu.Lock()
	c.sent = true
	c.mu.Unlock()
	return nil
}

// files holds the descriptors of one call.
type files struct {
	memory   int
	recordAt int64
	remote   []int // descriptors of the child, memory included
	out, err *capture
	draining bool
	readers  sync.WaitGroup
	flood    chan struct{}
}

// openFiles puts req into the memory file and makes the streams of its program.
func openFiles(req sandbox.Request, memory int, preamble []byte) (_ *files, err error) {
	f := &files{memory: memory, flood: make(chan struct{}, 2)}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	var room [1024]byte
	content, recordAt := callFile(room[:0], req, preamble)
	f.recordAt = recordAt
	if _, err = unix.Pwrite(memory, content, 0); err != nil {
		return nil, fmt.Errorf("memory file: %w", err)
	}
	f.remote = append(f.remote, f.memory)
	for _, stream := range []**capture{&f.out, &f.err} {
		var fds [2]int
		if err = unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return nil, descriptorError("pipe", err)
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

// begun returns when the program began, by the monotonic clock, or 0 while its layers are
// not complete. The child writes this time before it runs a line of the program.
func (f *files) begun() time.Duration {
	var b [stampAt + 8]byte
	if _, err := unix.Pread(f.memory, b[:], 0); err != nil || binary.LittleEndian.Uint32(b[:]) == stageForked {
		return 0
	}
	return time.Duration(binary.LittleEndian.Uint64(b[stampAt:]))
}

// drain starts goroutines that read the output while the program runs.
func (f *files) drain() {
	f.draining = true
	for _, c := range []*capture{f.out, f.err} {
		c.open()
		f.readers.Go(c.read)
	}
}

// collect reads the remaining output of a dead program.
func (f *files) collect() {
	for _, c := range []*capture{f.out, f.err} {
		if f.draining {
			// The stream ends soon. The deadline matters only where
			// processes can outlive their namespace; it fails after read has ended.
			_ = c.file.SetReadDeadline(time.Now().Add(time.Second))
		} else {
			c.takeFrom(c.fd)
		}
	}
	f.readers.Wait()
}

// memoryFile returns an anonymous file of the given size that holds content.
func memoryFile(content []byte, size int64) (int, error) {
	fd, err := unix.MemfdCreate("call", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, descriptorError("memory file", err)
	}
	if err = unix.Ftruncate(fd, size); err == nil && len(content) > 0 {
		_, err = unix.Pwrite(fd, content, 0)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("memory file: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// closeRemote closes the owner's copies of the descriptors that the child received.
func (f *files) closeRemote() {
	for _, fd := range f.remote {
		if fd != f.memory {
			_ = unix.Close(fd) // only this process uses it; a failed close leaves nothing to do
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
}
