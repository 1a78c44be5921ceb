package service

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
	"temper/internal/proc"
	"temper/internal/role"
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
	served := workers.Role{Row: role.Of(role.Control), Queues: []string{"q"}, Run: func(ctx context.Context, v *workers.Vitals) error {
		v.Serving("q")
		<-ctx.Done()
		return nil
	}}
	err := served.Serve(ctx, workers.ServeOptions{Listen: healthSocket(&config.Process{Home: home}, role.Control), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoppedRoleIsStartedAgain: a process that lives and does not run is no
// worker, although the kernel accepts connections for it.
func TestStoppedRoleIsStartedAgain(t *testing.T) {
	p := &config.Process{Home: t.TempDir()}
	child := roleChild(p, os.Args[0], role.Control, append(os.Environ(), roleHome+"="+p.Home))
	probe := &proc.Probe{Address: healthSocket(p, role.Control), Patience: 4 * time.Second}
	brief := func(ask func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			return ask(ctx)
		}
	}
	child.Args, child.Ready, child.Alive = []string{"-test.run=^TestRoleActs$"}, probe.Ready, brief(probe.Alive)
	child.LogFile = p.Home + "/log"
	s, err := proc.New(proc.Config{
		Children: []proc.Child{child}, PollInterval: 10 * time.Millisecond, HangTimeout: time.Second, MinHangChecks: 4,
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
		if now.PID != before.PID && now.State == proc.StateHealthy {
			if !strings.Contains(now.LastExit, "no good answer for") {
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
	silent := func(text string) { t.Errorf("said %q, and nothing was to be awaited", text) }
	began := time.Now()
	if err := awaitListeners(t.Context(), p, Options{}, silent); err == nil || time.Since(began) > time.Second {
		t.Errorf("a port that somebody else has, in a home that was never served: %v after %v, want a refusal at once", err, time.Since(began))
	}
	release, err := Claim(t.Context(), p, silent)
	if err != nil {
		t.Fatal(err)
	}
	release() // however a service ends, its lock file stays
	var said []string
	say := func(text string) { said = append(said, text) }
	time.AfterFunc(quiet+200*time.Millisecond, func() { _ = l.Close() })
	if err := awaitListeners(t.Context(), p, Options{}, say); err != nil {
		t.Errorf("the port was free after a moment: %v", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], p.SandboxAddress) || !strings.Contains(said[0], "waiting up to 10s") {
		t.Errorf("said %q, want one line that names the port and the time", said)
	}
}

// TestLockOfADyingServiceIsAwaited, and a wait can be ended.
func TestLockOfADyingServiceIsAwaited(t *testing.T) {
	p := &config.Process{Home: t.TempDir()}
	release, err := Claim(t.Context(), p, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	say := func(text string) { said = append(said, text) }
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Claim(brief, p, say); err == nil || len(said) > 0 {
		t.Errorf("two services of one home: %v, said %q", err, said)
	}
	time.AfterFunc(quiet+200*time.Millisecond, release)
	again, err := Claim(t.Context(), p, say)
	if err != nil {
		t.Fatalf("the lock was free after a moment: %v", err)
	}
	again()
	if len(said) != 1 || !strings.Contains(said[0], p.Home) {
		t.Errorf("said %q, want one line that names the home", said)
	}
}
