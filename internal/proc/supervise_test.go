package proc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/proc"
)

func TestStartsInOrderAndStopsInReverse(t *testing.T) {
	dir := t.TempDir()
	s := supervisor(t, proc.Config{Children: []proc.Child{
		server(t, dir, "a"), server(t, dir, "b"), server(t, dir, "c"),
	}})
	mustStart(t, s)
	for _, c := range s.Snapshot() {
		if c.State != proc.StateHealthy || c.PID == 0 || c.Restarts != 0 {
			t.Errorf("after Start: %+v, want healthy with a pid", c)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	got := strings.Fields(strings.ReplaceAll(read(t, dir+"/journal"), " ", ":"))
	want := []string{"a:up", "b:up", "c:up", "c:down", "b:down", "a:down"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order of events (-want +got):\n%s", diff)
	}
	for _, c := range s.Snapshot() {
		if c.State != proc.StateStopped || c.PID != 0 {
			t.Errorf("after Stop: %+v, want stopped", c)
		}
	}
}

// TestChildrenStartBesideEachOther: a child waits for those that it names and for no
// other, and all stop in the reverse order of the list.
func TestChildrenStartBesideEachOther(t *testing.T) {
	dir := t.TempDir()
	slow, beside, last := server(t, dir, "a"), server(t, dir, "b"), server(t, dir, "c")
	beside.After, last.After = []string{}, []string{"a"}
	release := make(chan struct{})
	ready := slow.Ready
	slow.Ready = func(ctx context.Context) error {
		select {
		case <-release:
			return ready(ctx)
		default:
			return errors.New("slow")
		}
	}
	s := supervisor(t, proc.Config{Children: []proc.Child{slow, beside, last}})
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	eventually(t, "b beside a", func() bool { return s.Snapshot()[1].State == proc.StateHealthy })
	if got := s.Snapshot(); got[0].State != proc.StateStarting || got[2].State != proc.StateWaiting {
		t.Errorf("a is %s and c is %s while a is slow, want starting and waiting", got[0].State, got[2].State)
	}
	close(release)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if got := read(t, dir+"/journal"); !strings.HasSuffix(got, "c up\nc down\nb down\na down\n") {
		t.Errorf("journal %q", got)
	}
}

func TestRestartsTheChildThatDied(t *testing.T) {
	dir := t.TempDir()
	s := supervisor(t, proc.Config{Children: []proc.Child{server(t, dir, "a"), server(t, dir, "b")}})
	mustStart(t, s)
	before := s.Snapshot()
	if err := syscall.Kill(before[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a healthy second life", func() bool {
		b := s.Snapshot()[1]
		return b.Restarts == 1 && b.State == proc.StateHealthy
	})
	after := s.Snapshot()
	if after[1].PID == before[1].PID || after[1].LastExit != "signal: killed" || !after[1].Since.After(before[1].Since) {
		t.Errorf("restarted child: %+v, before %+v", after[1], before[1])
	}
	if diff := cmp.Diff(before[0], after[0]); diff != "" {
		t.Errorf("the other child changed (-before +after):\n%s", diff)
	}
	if got := strings.Count(read(t, dir+"/b.log"), "start serve"); got != 2 {
		t.Errorf("log has %d starts, want 2: the second life must append", got)
	}
}

func TestStartFailureShowsTheLog(t *testing.T) {
	dir := t.TempDir()
	addr := freeAddr(t)
	s := supervisor(t, proc.Config{Children: []proc.Child{
		server(t, dir, "a"), child(dir, "b", "crash", addr), server(t, dir, "c"),
	}})
	err := s.Start(t.Context())
	if err == nil {
		t.Fatal("Start succeeded with a child that crashes")
	}
	for _, want := range []string{"b: exit status 3 before it was healthy (5 starts)", dir + "/b.log", "last words"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if got := strings.Count(read(t, dir+"/b.log"), "start crash"); got != 5 {
		t.Errorf("the child was started %d times, want 5", got)
	}
	var states []proc.State
	for _, c := range s.Snapshot() {
		states = append(states, c.State)
	}
	want := []proc.State{proc.StateStopped, proc.StateFailed, proc.StateWaiting}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestMissingProgramIsTriedOnce(t *testing.T) {
	dir := t.TempDir()
	c := server(t, dir, "a")
	c.Path = dir + "/none"
	s := supervisor(t, proc.Config{Children: []proc.Child{c}})
	err := s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a: cannot start: ") || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("Start = %v, want one that names the program", err)
	}
	if got := s.Snapshot()[0].Restarts; got != 0 {
		t.Errorf("restarts = %d, want 0", got)
	}
}

func TestChildThatIsNeverReady(t *testing.T) {
	dir := t.TempDir()
	s := supervisor(t, proc.Config{
		Children:     []proc.Child{child(dir, "a", "idle", freeAddr(t))},
		StartTimeout: 150 * time.Millisecond,
	})
	err := s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a: not ready after ") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Start = %v, want the time-out and the last answer of the check", err)
	}
}

func TestCancelledStartStopsGently(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("interrupted")
	late := child(dir, "b", "idle", freeAddr(t))
	refused := late.Ready
	late.Ready = func(ctx context.Context) error { cancel(reason); return refused(ctx) }
	s := supervisor(t, proc.Config{Children: []proc.Child{server(t, dir, "a"), late}})
	if err := s.Start(ctx); !errors.Is(err, reason) {
		t.Errorf("Start = %v, want the cause of the cancellation", err)
	}
	if got := read(t, dir+"/journal"); got != "a up\na down\n" {
		t.Errorf("journal %q: the running child was not stopped by SIGTERM", got)
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		hurry   bool
	}{
		{"after its time-out", 50 * time.Millisecond, false},
		{"at once in a hurry", time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := freeAddr(t)
			c := child(t.TempDir(), "a", "stubborn", addr, addr)
			c.StopTimeout = tt.timeout
			s := supervisor(t, proc.Config{Children: []proc.Child{c}})
			mustStart(t, s)
			pid := s.Snapshot()[0].PID
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.hurry {
				cancel()
			}
			if err := s.Stop(ctx); err == nil || !strings.Contains(err.Error(), "a did not stop by itself and was killed") {
				t.Errorf("Stop = %v, want the name of the child that was killed", err)
			}
			if !gone(pid) {
				t.Errorf("pid %d survives Stop", pid)
			}
		})
	}
}

func TestUnhealthyChildIsSeenAndLeftAlone(t *testing.T) {
	var sick atomic.Bool
	c := server(t, t.TempDir(), "a")
	listening := c.Ready
	c.Ready = func(ctx context.Context) error {
		if sick.Load() {
			return errors.New("sick")
		}
		return listening(ctx)
	}
	s := supervisor(t, proc.Config{Children: []proc.Child{c}})
	mustStart(t, s)
	pid := s.Snapshot()[0].PID
	sick.Store(true)
	eventually(t, "unhealthy", func() bool { return s.Snapshot()[0].State == proc.StateUnhealthy })
	sick.Store(false)
	eventually(t, "healthy again", func() bool { return s.Snapshot()[0].State == proc.StateHealthy })
	if got := s.Snapshot()[0]; got.PID != pid || got.Restarts != 0 {
		t.Errorf("after recovery: %+v, want pid %d and no restart", got, pid)
	}
}

func TestNothingOfADeadChildRemains(t *testing.T) {
	dir := t.TempDir()
	s := supervisor(t, proc.Config{MaxStarts: 1, Children: []proc.Child{
		child(dir, "a", "litter", freeAddr(t), dir+"/pid"),
	}})
	if err := s.Start(t.Context()); err == nil {
		t.Fatal("Start succeeded with a child that exits")
	}
	pid, err := strconv.Atoi(read(t, dir+"/pid"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprint("the end of grandchild ", pid), func() bool { return gone(pid) })
}

func TestNoOrphanAfterKillOfTheSupervisor(t *testing.T) {
	cmd := exec.Command(os.Args[0], t.TempDir(), freeAddr(t), freeAddr(t))
	cmd.Env = append(os.Environ(), roleEnv+"=supervisor")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) != 2 || gone(pids[0]) || gone(pids[1]) {
		t.Fatalf("children %v are not running", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for _, pid := range pids {
		eventually(t, fmt.Sprint("the end of orphan ", pid), func() bool { return gone(pid) })
	}
}

func TestNewRefuses(t *testing.T) {
	good := server(t, t.TempDir(), "a")
	unready, unlogged, astray := good, good, good
	unready.Ready, unlogged.LogFile, astray.After = nil, "", []string{"b"}
	for name, children := range map[string][]proc.Child{
		"two of a name": {good, good}, "no check": {unready}, "no log": {unlogged}, "after nobody": {astray},
	} {
		if _, err := proc.New(proc.Config{Children: children}); err == nil {
			t.Errorf("%s: New succeeded", name)
		}
	}
}

func TestCheckListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := proc.CheckListen(addr); err == nil || err.Error() != addr+" is in use by another process" {
		t.Errorf("CheckListen of a busy port = %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := proc.CheckListen(addr); err != nil {
		t.Errorf("CheckListen of a free port = %v", err)
	}
	if err := proc.CheckListen("192.0.2.1:80"); err == nil || !strings.Contains(err.Error(), "not an address of this machine") {
		t.Errorf("CheckListen of a foreign address = %v", err)
	}
}
