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
	"temper/internal/health"
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
	role := workers.Role{Name: "worker", Queues: []string{"q"}, Run: func(ctx context.Context, v *workers.Vitals) error {
		v.Serving("q")
		<-ctx.Done()
		return nil
	}}
	err := role.Serve(ctx, workers.ServeOptions{Listen: healthSocket(&config.Process{Home: home}, "worker"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoppedRoleIsStartedAgain: a process that lives and does not run is no
// worker, although the kernel accepts connections for it.
func TestStoppedRoleIsStartedAgain(t *testing.T) {
	p := &config.Process{Home: t.TempDir()}
	child := roleChild(p, os.Args[0], "worker", append(os.Environ(), roleHome+"="+p.Home))
	probe := &health.Probe{Address: healthSocket(p, "worker"), Patience: 4 * time.Second}
	brief := func(ask func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			return ask(ctx)
		}
	}
	child.Args, child.Ready, child.Alive = []string{"-test.run=^TestRoleActs$"}, probe.Ready, brief(probe.Alive)
	child.LogFile = p.Home + "/log"
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
	if err := awaitListeners(t.Context(), p, false); err == nil {
		t.Error("a port that somebody else has is taken for free")
	}
	if wasKilled(p) {
		t.Error("a home that was never served had its service killed")
	}
	if err := os.Mkdir(socketDir(p), 0o700); err != nil { // which only an orderly end removes
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = l.Close() })
	if err := awaitListeners(t.Context(), p, false); err != nil {
		t.Errorf("the port was free after 0.2 s: %v", err)
	}
	release, err := Claim(p)
	if err != nil {
		t.Fatal(err)
	}
	if wasKilled(p) {
		t.Error("a service that lives was killed")
	}
	if _, err := Claim(p); err == nil {
		t.Error("two services of one home")
	}
	release()
	if wasKilled(p) {
		t.Error("a service that ended in order was killed")
	}
}
