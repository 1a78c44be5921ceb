package proc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/internal/proc"
)

func listenHealth(t *testing.T, address string, s *proc.Health) *proc.Listener {
	t.Helper()
	l, err := proc.Listen(t.Context(), address, s.Handler(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return l
}

// says checks one answer: nil for yes, or an error with the text.
func says(t *testing.T, what string, got error, want string) {
	t.Helper()
	switch {
	case want == "" && got != nil:
		t.Errorf("%s: %v, want yes", what, got)
	case want != "" && (got == nil || !strings.Contains(got.Error(), want)):
		t.Errorf("%s: %v, want no because of %q", what, got, want)
	}
}

// TestTwoQuestions: what a process lacks makes it not ready, and it lives all the same.
func TestTwoQuestions(t *testing.T) {
	s := proc.NewHealth("trainer", "a", "b")
	l := listenHealth(t, "127.0.0.1:0", s)
	p := &proc.Probe{Address: l.Address()}
	ctx := t.Context()
	s.Serving("b")
	says(t, "ready before it serves all", p.Ready(ctx), "does not serve a yet")
	says(t, "alive before it serves", p.Alive(ctx), "")
	select {
	case <-s.Served():
		t.Error("it serves everything with a part missing")
	default:
	}
	s.Serving("a")
	s.Serving("a") // once more is no harm
	<-s.Served()
	says(t, "ready", p.Ready(ctx), "")

	var missing atomic.Bool
	s.Need("store", func(context.Context) error {
		if missing.Load() {
			return errors.New("connection refused")
		}
		return nil
	})
	missing.Store(true)
	time.Sleep(1100 * time.Millisecond) // an answer may be a second old
	says(t, "ready without a need", p.Ready(ctx), "store: connection refused")
	says(t, "alive without a need", p.Alive(ctx), "")
	s.Drain()
	says(t, "ready while it drains", p.Ready(ctx), "is draining")
	says(t, "alive while it drains", p.Alive(ctx), "")
}

// TestNeedThatDoesNotAnswer is missing, and the answer about it comes in time.
func TestNeedThatDoesNotAnswer(t *testing.T) {
	s := proc.NewHealth("x")
	s.Need("store", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	began := time.Now()
	says(t, "ready", s.Ready(t.Context()), "store: context deadline exceeded")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the answer took %v", took)
	}
}

// TestSocketBelowADeepHome: the kernel takes paths of 107 bytes, homes are longer,
// and a process that was killed leaves its socket behind.
func TestSocketBelowADeepHome(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	address := proc.UnixPrefix + filepath.Join(dir, "trainer")
	dead, err := proc.Listen(t.Context(), address, proc.NewHealth("dead").Handler(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dead.Close(t.Context())
	if _, err := os.Stat(filepath.Join(dir, "trainer")); err != nil {
		t.Fatalf("a socket that nobody serves should be left: %v", err)
	}
	p := &proc.Probe{Address: address}
	if err := p.Ready(t.Context()); err == nil {
		t.Error("a dead process is ready")
	}
	l := listenHealth(t, address, proc.NewHealth("trainer"))
	says(t, "ready", p.Ready(t.Context()), "")
	if l.Address() != address {
		t.Errorf("address %q, want %q", l.Address(), address)
	}
	if info, err := os.Stat(filepath.Join(dir, "trainer")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if _, err := proc.Listen(t.Context(), address, http.NotFoundHandler(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second listener: %v", err)
	}
}

func TestPatience(t *testing.T) {
	s := proc.NewHealth("x")
	l := listenHealth(t, "127.0.0.1:0", s)
	p := &proc.Probe{Address: l.Address(), Patience: 300 * time.Millisecond}
	says(t, "first", p.Ready(t.Context()), "")
	l.Close(t.Context())
	says(t, "gone for a moment", p.Alive(t.Context()), "")
	time.Sleep(350 * time.Millisecond)
	says(t, "gone", p.Alive(t.Context()), "no good answer for")
	never := &proc.Probe{Address: l.Address(), Patience: time.Hour}
	says(t, "never there", never.Alive(t.Context()), "refused")
}

func TestAddresses(t *testing.T) {
	for address, c := range map[string]struct {
		insecure bool
		want     string
	}{
		"127.0.0.1:0":    {false, ""},
		"[::1]:9000":     {false, ""},
		"localhost:9000": {false, ""},
		"unix:/a/b":      {false, ""},
		"unix:b":         {true, "absolute path"},
		"0.0.0.0:9000":   {false, "allow it with --insecure"},
		":9000":          {false, "allow it with --insecure"},
		"10.0.0.1:9000":  {false, "allow it with --insecure"},
		"node-3:9000":    {false, "allow it with --insecure"},
		"0.0.0.0:9001":   {true, ""},
		"here":           {true, "want host:port"},
	} {
		says(t, address, proc.CheckAddress(address, c.insecure), c.want)
	}
}

// TestPagesOfABrowserAreRefused: a page may have its own name resolve to this machine.
func TestPagesOfABrowserAreRefused(t *testing.T) {
	l := listenHealth(t, "127.0.0.1:0", proc.NewHealth("x"))
	_, port, err := net.SplitHostPort(l.Address())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		l.Address(): 200, "localhost:" + port: 200, "evil.example:" + port: 403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Address()+proc.PathReady, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // nothing is read
		if resp.StatusCode != want {
			t.Errorf("host %s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
}
