package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"temper/internal/config"
)

// A role without a port of its own tells that it serves by a file with its
// process id; the file of a dead process does not count.

func readyPath(p *config.Process, role string) string {
	return filepath.Join(p.Home, "ready", role)
}

// peakFile holds the largest memory of the service since temper up started it.
func peakFile(p *config.Process) string { return filepath.Join(p.Home, "peak-memory") }

// claimHome makes this process the only `temper up` of its home, and forgets
// who was ready there before: a process id is used again.
func claimHome(p *config.Process) (release func(), err error) {
	if err := os.MkdirAll(p.LogDir(), 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(p.Home, "up.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, usagef("another temper up serves %s: stop it, or choose another folder with --home", p.Home)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := os.RemoveAll(filepath.Join(p.Home, "ready")); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	if err := os.Remove(peakFile(p)); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return func() { _ = f.Close() }, nil // closing gives the lock back
}

// announceReady writes the ready file of this process.
func announceReady(p *config.Process, role string) error {
	path := readyPath(p, role)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// readyFile is the health check of a role: its file names a living process.
func readyFile(p *config.Process, role string) func(context.Context) error {
	return func(context.Context) error {
		data, err := os.ReadFile(readyPath(p, role))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("%s: process %d is gone", role, pid)
		}
		return nil
	}
}
