//go:build xla

package hosts_test

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/hosts"
	"temper/trainer/xla/xlatest"
)

// hubKey names the hub of the process that TestXLAOfOtherBits starts.
const hubKey = "TEMPER_TEST_HUB"

func identityXLA(name, backend string) hosts.Identity {
	return hosts.Identity{Name: name, Build: "b1", Backend: backend, Lanes: 1}
}

// TestXLAMemberProcess is a host in a process of its own.
func TestXLAMemberProcess(t *testing.T) {
	where := os.Getenv(hubKey)
	if where == "" {
		t.Skip("TestXLAOfOtherBits starts it (2026-11-27)")
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", where)
	if err != nil {
		t.Fatal(err)
	}
	m := &hosts.Host{Identity: identityXLA("m", xlatest.Backend(t)), Patience: patience, Log: slog.New(slog.DiscardHandler)}
	t.Log(m.Serve(t.Context(), c))
}

// startXLA starts a host with flags of XLA beside those of this process.
func (s *site) startXLA(flags string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestXLAMemberProcess$", "-test.v")
	cmd.Env = append(os.Environ(), hubKey+"="+s.where, "XLA_FLAGS="+strings.TrimSpace(os.Getenv("XLA_FLAGS")+" "+flags))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.t.Log(lines.Text())
		}
		_ = cmd.Wait() // it is killed
	}()
	s.t.Cleanup(func() { cancel(); <-over })
	s.hosts(1)
}

// TestXLAOfOtherBits: a host whose device computes other bits is left out, here one that
// may use the instructions of an older processor. One that computes the same helps.
func TestXLAOfOtherBits(t *testing.T) {
	backend := xlatest.Backend(t)
	cfg := smallConfig()
	cfg.Backend = backend
	for flags, other := range map[string]bool{"": false, "--xla_cpu_max_isa=SSE4_2": true} {
		s := newSiteOf(t, hosts.Config{Identity: identityXLA("hub", backend)})
		s.startXLA(flags)
		cfg.Remote = s.hub.Session("r")
		updates, got := learn(t, cfg, func(made int) bool { return other && made == 3 || s.hub.Counts().Passes > 0 || made == 20 })
		cfg.Remote = nil
		if _, want := learn(t, cfg, func(made int) bool { return made == updates }); !cmp.Equal(got, want) {
			t.Errorf("flags %q: the state has other bits than that of one process", flags)
		}
		if c := s.hub.Counts(); other != (c.Passes == 0) {
			t.Errorf("flags %q: %+v\n%s", flags, c, s.log)
		}
		if says := strings.Contains(s.log.String(), "this host would compute other bits: xla_flags="); says != other {
			t.Errorf("flags %q: the log is\n%s", flags, s.log)
		}
	}
}
