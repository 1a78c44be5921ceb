package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// ErrNoBranch means that a kernel has state that cannot be copied.
var ErrNoBranch = errors.New("the kernel cannot be copied")

// Branch returns a kernel in the state of k, between two cells. A locked-in process cannot
// fork: it may not make a process, and a fork would keep its namespaces and its user id. So
// the copy is a new kernel of the same interpreter in a separate jail, into which the owner
// writes the pages, the mappings and the registers of k. Both come from one process without
// address randomization, so only the pages that k has written differ.
//
// Branch returns ErrNoBranch for state that a copy of the memory does not hold: threads,
// open descriptors, files in /tmp, signal handlers, lowered limits, and more memory than a
// copy is worth.
func (k *Kernel) Branch(ctx context.Context) (*Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.alive() || k.closed.Load() || k.pid <= 0 {
		return nil, fmt.Errorf("%w: its process is not known", ErrNoBranch)
	}
	if err := requirePlain(k.pid); err != nil {
		return nil, err
	}
	b := &Kernel{zygote: k.zygote, call: k.zygote.newCall(kindKernel), stdin: -1, pid: -1, pidfd: -1, rung: make(chan struct{}, 1), unready: true}
	if err := k.zygote.acquireSlot(b.call); err != nil {
		return nil, err
	}
	err := b.start(ctx, sandbox.Request{Limits: sandbox.Limits{Memory: k.memory}})
	if err == nil {
		err = copyKernel(k, b)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// copyKernel makes b, which has run nothing, a copy of k.
func copyKernel(k, b *Kernel) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range []struct{ file, what string }{{"status", "signal handlers or umask"}, {"limits", "limits"}} {
		if err := equal(c.file, c.what, k.pid, b.pid); err != nil {
			return err
		}
	}
	if err := copyProcess(k.pid, b.pid); err != nil {
		return fmt.Errorf("%w: %w", ErrNoBranch, err)
	}
	b.number, b.unready = k.number, false
	b.signal(unix.SIGSTOP)
	return nil
}

// equal returns an error if the kernels differ in a file of /proc. Of a status file it
// compares the lines that a program can change and that a copy of the memory does not hold.
func equal(file, what string, pids ...int) error {
	var texts [2]string
	for i, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoBranch, err)
		}
		texts[i] = string(text)
		if file == "status" {
			texts[i] = settingsOf(texts[i])
		}
	}
	if texts[0] != texts[1] {
		return fmt.Errorf("%w: the program has changed its %s", ErrNoBranch, what)
	}
	return nil
}

// settingsOf returns the lines of a status file that have to be equal.
func settingsOf(status string) string {
	var kept strings.Builder
	for line := range strings.Lines(status) {
		for _, name := range [...]string{"Umask:", "SigBlk:", "SigIgn:", "SigCgt:"} {
			if strings.HasPrefix(line, name) {
				kept.WriteString(line)
			}
		}
	}
	return kept.String()
}

// ownDescriptors counts the descriptors of every kernel: its streams and its bell.
const ownDescriptors = 4

// requirePlain returns an error if the process of a kernel has state beside its memory.
func requirePlain(pid int) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	for _, c := range []struct {
		dir, what string
		most      int
	}{
		{"task", "threads", 1},
		{"fd", "open descriptors", ownDescriptors},
		{"root/tmp", "files in /tmp", 0},
	} {
		entries, err := os.ReadDir(proc + c.dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoBranch, err)
		}
		if len(entries) > c.most {
			return fmt.Errorf("%w: it has %s", ErrNoBranch, c.what)
		}
	}
	if at, err := os.Readlink(proc + "cwd"); err != nil || filepath.Base(at) != "tmp" {
		return fmt.Errorf("%w: it works in another folder", ErrNoBranch)
	}
	return nil
}
