package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of a copy. Above them it is faster and safer to run the cells again.
const (
	maxCopy     = 64 << 20 // bytes of pages
	maxMappings = 4096
	xstateRoom  = 16 << 10
	noteXstate  = 0x202
	getRegset   = 0x4204
	setRegset   = 0x4205
	insnSyscall = 0x050f // the two bytes of the instruction
)

// copyProcess gives the mappings, the pages and the registers of the stopped process from
// to the process to, which waits for its first cell. Both have one thread and the same
// zygote as their parent.
func copyProcess(from, to int) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	source, err := trace(from)
	if err != nil {
		return err
	}
	defer source.release()
	target, err := trace(to)
	if err != nil {
		return err
	}
	defer target.release()
	if err := target.awaitRead(); err != nil {
		return err
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(from, &regs); err != nil {
		return fmt.Errorf("registers: %w", err)
	}
	if int64(regs.Rax) == -516 { // ERESTART_RESTARTBLOCK: the state of the call is inside the Linux kernel
		return errors.New("it waits in a system call that cannot be copied")
	}
	all, fresh, err := target.remap(source)
	if err != nil {
		return err
	}
	if err := target.copyPages(source, all, fresh); err != nil {
		return err
	}
	room := make([]byte, xstateRoom)
	n, err := source.xstate(getRegset, room)
	if err != nil {
		return fmt.Errorf("vector registers: %w", err)
	}
	if _, err := target.xstate(setRegset, room[:n]); err != nil {
		return fmt.Errorf("vector registers: %w", err)
	}
	if err := unix.PtraceSetRegs(to, &regs); err != nil {
		return fmt.Errorf("registers: %w", err)
	}
	return nil
}

// tracee is a stopped process that this thread traces.
type tracee struct {
	pid  int
	mem  *os.File
	gate uint64          // address of a system call instruction
	regs unix.PtraceRegs // of the target before the copy
}

func trace(pid int) (*tracee, error) {
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t := &tracee{pid: pid}
	err := unix.PtraceInterrupt(pid)
	if err == nil {
		err = t.stopped()
	}
	if err == nil {
		t.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	}
	if err != nil {
		t.release()
		return nil, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

// stopped waits until the process has stopped for its tracer.
func (t *tracee) stopped() error {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(t.pid, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case ws.Stopped():
			return nil
		default:
			return errors.New("it has ended")
		}
	}
}

func (t *tracee) release() {
	if t.mem != nil {
		_ = t.mem.Close() // the writes have reached the process
	}
	if unix.PtraceDetach(t.pid) == nil {
		return
	}
	// It was killed: its parent learns of the end after its tracer.
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(t.pid, &ws, unix.WALL, nil); err != unix.EINTR {
			return
		}
	}
}

// awaitRead waits until the target reads its bell, and records the address of that system
// call instruction, which call uses for other system calls.
func (t *tracee) awaitRead() error {
	for range 200 {
		if err := unix.PtraceGetRegs(t.pid, &t.regs); err != nil {
			return fmt.Errorf("registers: %w", err)
		}
		var insn [2]byte
		t.gate = t.regs.Rip - 2
		_, err := t.mem.ReadAt(insn[:], int64(t.gate))
		if err == nil && t.regs.Orig_rax == unix.SYS_READ && uint16(insn[0])|uint16(insn[1])<<8 == insnSyscall {
			return nil
		}
		if err := unix.PtraceCont(t.pid, 0); err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
		if err := unix.PtraceInterrupt(t.pid); err != nil {
			return err
		}
		if err := t.stopped(); err != nil {
			return err
		}
	}
	return errors.New("it does not wait for a cell")
}

// call makes a system call in the process.
func (t *tracee) call(number uint64, args ...uint64) error {
	regs := t.regs
	regs.Rip, regs.Rax, regs.Orig_rax = t.gate, number, ^uint64(0)
	places := [...]*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx, &regs.R10, &regs.R8, &regs.R9}
	for i, arg := range args {
		*places[i] = arg
	}
	err := unix.PtraceSetRegs(t.pid, &regs)
	if err == nil {
		err = unix.PtraceSingleStep(t.pid)
	}
	if err == nil {
		err = t.stopped()
	}
	if err == nil {
		err = unix.PtraceGetRegs(t.pid, &regs)
	}
	switch {
	case err != nil:
		return fmt.Errorf("system call %d: %w", number, err)
	case regs.Rip != t.gate+2:
		return fmt.Errorf("system call %d did not come to its end", number)
	case number == unix.SYS_BRK:
		if regs.Rax != args[0] {
			return errors.New("the heap cannot grow")
		}
	case int64(regs.Rax) < 0 && int64(regs.Rax) >= -4095:
		return fmt.Errorf("system call %d: %w", number, unix.Errno(-int64(regs.Rax)))
	}
	return nil
}

// xstate reads or writes all registers beyond the general ones.
func (t *tracee) xstate(request uintptr, room []byte) (int, error) {
	iovec := unix.Iovec{Base: &room[0], Len: uint64(len(room))}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(t.pid), noteXstate, uintptr(unsafe.Pointer(&iovec)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(iovec.Len), nil
}
