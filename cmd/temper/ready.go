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
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/cli"
	"temper/internal/config"
)

// A role without a port of its own tells that it serves by a file with its
// process id, which it touches as long as it runs. The file of a dead process does
// not count, and neither does one that was not touched for a while: its process
// is stopped or hangs. The supervisor waits for its own time-out on top of that,
// so that what stops a process for some seconds, such as a busy machine, is no
// reason to kill it. An activity that makes no progress in a process that runs is
// found by the activity's own watch.
const (
	touchEvery = time.Second
	staleAfter = 15 * time.Second
)

// Times to wait for what a service that was killed leaves behind.
const (
	lockPatience   = time.Second
	listenPatience = 10 * time.Second
)

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
	f, err := lockHome(p)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(p.Home, "ready")); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	if err := os.Remove(peakFile(p)); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return func() {
		_ = os.RemoveAll(filepath.Join(p.Home, "ready")) // the next start does it, too
		_ = f.Close()                                    // gives the lock back
	}, nil
}

// lockHome waits a moment for a service that is dying.
func lockHome(p *config.Process) (*os.File, error) {
	path := filepath.Join(p.Home, "up.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end):
			continue
		}
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, cli.Usagef("another temper up serves %s: stop it, or choose another folder with --home", p.Home)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}

// wasKilled says whether the last service of the home did not end in order. Its
// children may hold their ports for a moment longer.
func wasKilled(p *config.Process) bool {
	if _, err := os.Stat(filepath.Join(p.Home, "ready")); err != nil {
		return false
	}
	f, err := lockHome(p)
	if err != nil {
		return false
	}
	_ = f.Close() // gives the lock back
	return true
}

// awaitListeners is checkListeners for a service that may have been killed just now.
func awaitListeners(ctx context.Context, p *config.Process, embedded bool) error {
	err := checkListeners(p, embedded)
	if err == nil || !wasKilled(p) {
		return err
	}
	for end := time.Now().Add(listenPatience); err != nil && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		err = checkListeners(p, embedded)
	}
	return err
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

// touchReady says that this process still runs.
func touchReady(p *config.Process, role string) {
	now := time.Now()
	_ = os.Chtimes(readyPath(p, role), now, now) // not there before the role is ready; else its reader tells
}

// readyFile is the health check of a role: its file names a living process, and
// was touched not longer than stale ago.
func readyFile(p *config.Process, role string, stale time.Duration) func(context.Context) error {
	return func(context.Context) error {
		data, err := os.ReadFile(readyPath(p, role))
		if err != nil {
			return err
		}
		info, err := os.Stat(readyPath(p, role))
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
		if silent := time.Since(info.ModTime()); silent > stale {
			return fmt.Errorf("%s: process %d has not run for %v", role, pid, silent.Round(time.Second))
		}
		return nil
	}
}
