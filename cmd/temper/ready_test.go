package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/supervise"
	"temper/workers"
)

// roleHome makes the test binary act as a role of the home that it names.
const roleHome = "TEMPER_TEST_ROLE_HOME"

// TestRoleActs is no test of its own: it is the child of TestStoppedRoleIsStartedAgain.
func TestRoleActs(t *testing.T) {
	home := os.Getenv(roleHome)
	if home == "" {
		t.Skip("is the child of TestStoppedRoleIsStartedAgain, and runs there")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	err := serveAll(ctx, &config.Process{Home: home}, "worker", func(ctx context.Context, o workers.Options) error {
		if err := o.OnStart(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoppedRoleIsStartedAgain: a process that lives and does not run is no
// worker, though its process id answers.
func TestStoppedRoleIsStartedAgain(t *testing.T) {
	p := &config.Process{Home: t.TempDir()}
	child := supervise.Child{
		Name: "worker", Path: os.Args[0], Args: []string{"-test.run=^TestRoleActs$"}, Env: append(os.Environ(), roleHome+"="+p.Home),
		LogFile: p.Home + "/log", Ready: readyFile(p, "worker", 4*touchEvery), StopTimeout: 10 * time.Second,
	}
	s, err := supervise.New(supervise.Config{
		Children: []supervise.Child{child}, PollInterval: 10 * time.Millisecond, HangTimeout: time.Second, MinHangChecks: 4,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) }) // a child that was stopped does not end in order
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Snapshot()[0]
	if err := syscall.Kill(before.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now := s.Snapshot()[0]
		if now.PID != before.PID && now.State == supervise.StateHealthy {
			if !strings.Contains(now.LastExit, "has not run for") {
				t.Errorf("it ended by %q, which does not say why", now.LastExit)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a stopped child goes unnoticed: %+v", now)
		}
	}
}

// TestPortsOfAKilledServiceAreAwaited, and those of a living or foreign one are not.
func TestPortsOfAKilledServiceAreAwaited(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &config.Process{Home: t.TempDir(), SandboxAddress: l.Addr().String()}
	if err := awaitListeners(t.Context(), p, false); err == nil {
		t.Error("a port that somebody else has is taken for free")
	}
	if wasKilled(p) {
		t.Error("a home that was never served had its service killed")
	}
	if err := announceReady(p, "worker"); err != nil { // which only an orderly end takes back
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = l.Close() })
	if err := awaitListeners(t.Context(), p, false); err != nil {
		t.Errorf("the port was free after 0.2 s: %v", err)
	}
	release, err := claimHome(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := announceReady(p, "worker"); err != nil {
		t.Fatal(err)
	}
	if wasKilled(p) {
		t.Error("a service that lives was killed")
	}
	if _, err := claimHome(p); err == nil {
		t.Error("two services of one home")
	}
	release()
	if wasKilled(p) {
		t.Error("a service that ended in order was killed")
	}
}
