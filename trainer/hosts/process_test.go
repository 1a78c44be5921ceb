//go:build integration

package hosts_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/fileblob"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/hosts"
)

// The environment of the processes that TestProcesses starts.
const (
	actKey   = "TEMPER_TEST_ACT" // leader, host or measure
	placeKey = "TEMPER_TEST_PLACE"
)

// numUpdates is what a leader makes; it saves after every second one.
const numUpdates = 6

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(actKey) {
	case "":
		os.Exit(m.Run())
	case "leader":
		err = lead(context.Background(), os.Getenv(placeKey), true)
	case "measure":
		err = measure(context.Background(), os.Getenv(placeKey))
	case "host":
		follow(context.Background(), os.Getenv(placeKey))
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// follow is a host that joins whatever trainer is at the place.
func follow(ctx context.Context, place string) {
	m := &hosts.Host{Identity: identity(fmt.Sprint(os.Getpid())), Patience: patience, Log: slog.New(slog.DiscardHandler)}
	m.OnJoin = func(rank int) { fmt.Println("rank", rank) }
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(place, "hosts"))
		if err == nil {
			_ = m.Serve(ctx, c) // a trainer that is gone comes back
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lead trains from the newest checkpoint at the place to the end.
func lead(ctx context.Context, place string, remote bool) error {
	store, err := fileblob.New(filepath.Join(place, "store"))
	if err != nil {
		return err
	}
	cfg := smallConfig()
	if remote {
		_ = os.Remove(filepath.Join(place, "hosts")) // of one that was killed
		l, err := net.Listen("unix", filepath.Join(place, "hosts"))
		if err != nil {
			return err
		}
		hub := hosts.NewHub(hosts.Config{Identity: identity("leader"), Patience: patience})
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go hub.Serve(ctx, l) //nolint:errcheck // it ends with the process
		cfg.Remote, cfg.Lanes = hub.Session("r"), 1
		for fmt.Println("waits"); hub.Counts().Hosts < 1; time.Sleep(time.Millisecond) {
		}
		defer func() { fmt.Printf("counts %+v\n", hub.Counts()) }()
	}
	return trainFrom(ctx, cfg, store)
}

func trainFrom(ctx context.Context, cfg trainer.Config, store *fileblob.Store) error {
	tr, err := trainer.New(cfg)
	if err != nil {
		return err
	}
	defer tr.Close()
	done := 0
	saved, err := checkpoint.List(ctx, store, "checkpoints")
	if err != nil {
		return err
	}
	if n := len(saved); n > 0 {
		done, err = tr.Restore(ctx, store, saved[n-1].Ref)
	} else {
		err = tr.Init(1)
	}
	for s := samples(12, 24, 3); err == nil && done < numUpdates; {
		done++
		fmt.Println("update", done)
		if _, err = tr.SFTStep(ctx, s, adam(), trainer.Position{Step: done}); err == nil && done%2 == 0 {
			_, err = tr.Save(ctx, store, "checkpoints", done)
		}
	}
	return err
}

// process is one of this test.
type process struct {
	cmd   *exec.Cmd
	lines chan string
}

func start(t testing.TB, act, place string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), actKey+"="+act, placeKey+"="+place)
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.cmd.Wait() // most are killed
	}()
	t.Cleanup(func() { p.kill(); <-over })
	return p
}

// kill is SIGKILL.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // it may have ended

// await reads to a line that begins like this; "" is the end.
func (p *process) await(t testing.TB, prefix string) string {
	t.Helper()
	var seen []string
	for late := time.After(2 * time.Minute); ; {
		select {
		case line, ok := <-p.lines:
			if seen = append(seen, line); ok && prefix != "" && strings.HasPrefix(line, prefix) || !ok && prefix == "" {
				return strings.Join(seen, "\n")
			}
			if !ok || strings.HasPrefix(line, "failed") {
				t.Fatalf("ended without a line like %q: %q", prefix, seen)
			}
		case <-late:
			t.Fatalf("no line like %q: %q", prefix, seen)
		}
	}
}

// stateAt is the last checkpoint at a place.
func stateAt(t *testing.T, place string) checkpoint.State {
	t.Helper()
	store, err := fileblob.New(filepath.Join(place, "store"))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := checkpoint.List(t.Context(), store, "checkpoints")
	if err != nil || len(saved) == 0 || saved[len(saved)-1].Step != numUpdates {
		t.Fatalf("checkpoints %+v, error %v", saved, err)
	}
	_, s, err := checkpoint.Load(t.Context(), store, saved[len(saved)-1].Ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProcesses: two and four processes train, a host is killed with SIGKILL while an
// update is made, then the leader, which is started again from its newest checkpoint and
// joined by the hosts that are left. The last state has the bits of one process.
func TestProcesses(t *testing.T) {
	alone := t.TempDir()
	if err := lead(t.Context(), alone, false); err != nil {
		t.Fatal(err)
	}
	want := stateAt(t, alone)
	for _, numHosts := range []int{1, 3} {
		place, err := os.MkdirTemp("", "hosts") //nolint:usetesting // short enough for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(place) })
		leader := start(t, "leader", place)
		first := start(t, "host", place)
		for range numHosts - 1 {
			start(t, "host", place)
		}
		first.await(t, "rank ")
		leader.await(t, "update 2")
		first.kill()
		start(t, "host", place)
		leader.await(t, "update 4")
		leader.kill()
		leader.await(t, "")
		leader = start(t, "leader", place)
		said := leader.await(t, "")
		if !strings.Contains(said, "update 5") || strings.Contains(said, "update 2") || strings.Contains(said, " Passes:0 ") {
			t.Errorf("%d hosts: the second leader said %q, want updates from the checkpoint of the second, with hosts", numHosts, said)
		}
		if got := stateAt(t, place); !cmp.Equal(got, want) {
			t.Errorf("%d hosts: the last state has other bits than that of one process", numHosts)
		}
		t.Log(said)
	}
}
