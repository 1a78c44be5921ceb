package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/workers"
)

// Times to wait for the lock and the ports of a service that was killed.
const (
	lockPatience   = time.Second
	listenPatience = 10 * time.Second
)

// socketDir is where the children of the service answer for their health. It is
// there as long as the service runs, and stays behind when that is killed.
func socketDir(p *config.Process) string { return filepath.Join(p.Home, "sockets") }

// Claim makes this process the only `temper up` of its home, and removes what a
// service that was killed left there.
func Claim(p *config.Process) (release func(), err error) {
	if err := os.MkdirAll(p.LogDir(), 0o755); err != nil {
		return nil, err
	}
	f, err := lockHome(p)
	if err != nil {
		return nil, err
	}
	err = os.RemoveAll(socketDir(p))
	if err == nil {
		err = os.Mkdir(socketDir(p), 0o700)
	}
	if removed := os.Remove(workers.PeakFile(p)); err == nil && !errors.Is(removed, os.ErrNotExist) {
		err = removed
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return func() {
		_ = os.RemoveAll(socketDir(p)) // the next start does it, too
		_ = f.Close()                  // gives the lock back
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

// wasKilled reports whether the last service of the home did not end in order. Its
// children may hold their ports for a moment longer.
func wasKilled(p *config.Process) bool {
	if _, err := os.Stat(socketDir(p)); err != nil {
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
