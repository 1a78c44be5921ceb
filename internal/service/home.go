package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/workers"
)

// How long to wait for the lock and the ports of a service that was killed.
const (
	patience  = 10 * time.Second
	quiet     = 500 * time.Millisecond // before a person is told
	pollPause = 20 * time.Millisecond
)

// socketDir is where the children of the service answer for their health. It is
// there as long as the service runs, and stays behind when that is killed.
func socketDir(p *config.Process) string { return filepath.Join(p.Home, "sockets") }

// Claim makes this process the only `temper up` of its home, and removes what a killed
// service left there. It waits a while for one that is ending, and reports this to say.
func Claim(ctx context.Context, p *config.Process, say func(string)) (release func(), err error) {
	if err := os.MkdirAll(p.LogDir(), 0o755); err != nil {
		return nil, err
	}
	f, err := lockHome(ctx, p, say)
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

// lockPath is the file that a living service of the home has locked. It stays when the
// service ends.
func lockPath(p *config.Process) string { return filepath.Join(p.Home, "up.lock") }

// lockHome waits a while for a service that is dying: a process that was killed holds
// its lock until the kernel has taken its memory.
func lockHome(ctx context.Context, p *config.Process, say func(string)) (*os.File, error) {
	f, err := os.OpenFile(lockPath(p), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	w := newWaiting("another temper up of "+p.Home+" to end", say)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) && w.pause(ctx) {
			continue
		}
		_ = f.Close() // nothing was written
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w while waiting for another temper up of %s to end", cli.ErrInterrupted, p.Home)
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, cli.Usagef("another temper up serves %s: stop it, or choose another folder with --home", p.Home)
		default:
			return nil, fmt.Errorf("lock %s: %w", lockPath(p), err)
		}
	}
}

// wasServed reports whether the home has had a service. Its children may hold their
// ports for a moment longer than it lives, however it has ended.
func wasServed(p *config.Process) bool {
	_, err := os.Stat(lockPath(p))
	return err == nil
}

// awaitListeners is checkListeners for a home whose last service may have been killed
// just now.
func awaitListeners(ctx context.Context, p *config.Process, o Options, say func(string)) error {
	err := checkListeners(p, o)
	if err == nil || !wasServed(p) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	w := newWaiting("the last service of "+p.Home+" to leave its ports ("+what+")", say)
	for err != nil && w.pause(ctx) {
		err = checkListeners(p, o)
	}
	return err
}

// waiting is a bounded wait for what a service that was killed still holds.
type waiting struct {
	what  string
	say   func(string)
	began time.Time
	said  bool
}

func newWaiting(what string, say func(string)) *waiting {
	return &waiting{what: what, say: say, began: time.Now()}
}

// pause waits a moment, and says once for what. It returns false when that has taken
// long enough.
func (w *waiting) pause(ctx context.Context) bool {
	past := time.Since(w.began)
	if past > patience || ctx.Err() != nil {
		return false
	}
	if past > quiet && !w.said {
		w.said = true
		w.say(fmt.Sprintf("waiting up to %s for %s", patience, w.what))
	}
	time.Sleep(pollPause)
	return true
}
