package proc_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/internal/proc"
)

// TestHungChildIsKilledAndStartedAgain: one that is stopped neither answers nor dies.
func TestHungChildIsKilledAndStartedAgain(t *testing.T) {
	c := server(t, t.TempDir(), "a")
	listening := c.Ready
	var stopped atomic.Int64 // pid that is stopped: the kernel accepts for it
	var s *proc.Supervisor
	c.Ready = func(ctx context.Context) error {
		if pid := stopped.Load(); pid != 0 && int(pid) == s.Snapshot()[0].PID {
			return errors.New("no answer")
		}
		return listening(ctx)
	}
	s = supervisor(t, proc.Config{Children: []proc.Child{c}, HangTimeout: 300 * time.Millisecond, MinHangChecks: 3})
	mustStart(t, s)
	before := s.Snapshot()[0]
	if err := syscall.Kill(before.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped.Store(int64(before.PID))
	eventually(t, "a healthy second life", func() bool {
		now := s.Snapshot()[0]
		return now.Restarts == 1 && now.State == proc.StateHealthy && now.PID != before.PID
	})
	if got := s.Snapshot()[0].LastExit; !strings.Contains(got, "killed: no answer") {
		t.Errorf("last exit %q does not say why", got)
	}
}

// TestSlowChildIsLeftAlone: some failed checks are not a hang, and neither is a
// long time with few checks.
func TestSlowChildIsLeftAlone(t *testing.T) {
	for name, conf := range map[string]proc.Config{
		"few checks": {HangTimeout: time.Nanosecond, MinHangChecks: 1 << 30},
		"short time": {HangTimeout: time.Hour, MinHangChecks: 1},
		"never":      {HangTimeout: -1, MinHangChecks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := server(t, t.TempDir(), "a")
			listening := c.Ready
			var ill atomic.Bool
			var failed atomic.Int64
			c.Ready = func(ctx context.Context) error {
				if ill.Load() {
					failed.Add(1)
					return errors.New("too busy")
				}
				return listening(ctx)
			}
			conf.Children = []proc.Child{c}
			s := supervisor(t, conf)
			mustStart(t, s)
			before := s.Snapshot()[0]
			ill.Store(true)
			eventually(t, "failed checks", func() bool { return failed.Load() >= 3 })
			ill.Store(false)
			eventually(t, "health", func() bool { return s.Snapshot()[0].State == proc.StateHealthy })
			if now := s.Snapshot()[0]; now.PID != before.PID || now.Restarts != 0 {
				t.Errorf("a slow child was killed: %+v, before %+v", now, before)
			}
		})
	}
}

// TestReadyIsAskedOnce: a child that lacks something later on is not started again
// for it, as long as it lives.
func TestReadyIsAskedOnce(t *testing.T) {
	c := server(t, t.TempDir(), "a")
	listening := c.Ready
	var ready, alive atomic.Int64
	c.Ready = func(ctx context.Context) error {
		err := listening(ctx)
		if err == nil && ready.Add(1) > 1 {
			return errors.New("lacks something")
		}
		return err
	}
	c.Alive = func(ctx context.Context) error { alive.Add(1); return listening(ctx) }
	s := supervisor(t, proc.Config{Children: []proc.Child{c}, HangTimeout: time.Nanosecond, MinHangChecks: 1})
	mustStart(t, s)
	eventually(t, "checks of its life", func() bool { return alive.Load() >= 3 })
	if now := s.Snapshot()[0]; now.State != proc.StateHealthy || now.Restarts != 0 || ready.Load() != 1 {
		t.Errorf("%+v after %d good checks of readiness, want one and no restart", now, ready.Load())
	}
}
