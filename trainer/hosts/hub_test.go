package hosts_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/hosts"
)

// short is a listener that has no file descriptor for the first connections.
type short struct {
	net.Listener
	left atomic.Int64
}

// Accept implements net.Listener.
func (l *short) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestHubOutlivesWantOfDescriptors: the hub goes on, and takes hosts afterwards. A listener
// that is closed ends it.
func TestHubOutlivesWantOfDescriptors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	lacking := &short{Listener: l}
	lacking.left.Store(3)
	s := &site{t: t, where: l.Addr().String(), log: &lines{}, hub: hosts.NewHub(hosts.Config{Identity: identity("hub"), Patience: patience})}
	served := make(chan error, 1)
	go func() { served <- s.hub.Serve(t.Context(), lacking) }()
	ended := s.join(&hosts.Host{Identity: identity("m")}, nil)
	s.hosts(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the hub ended with %v", err)
	}
	t.Log(<-ended)
}

// broken is a listener that accepts nothing any more.
type broken struct {
	net.Listener
	closed bool
}

// Accept implements net.Listener.
func (*broken) Accept() (net.Conn, error) { return nil, syscall.EBADF }

// Close implements net.Listener.
func (l *broken) Close() error { l.closed = true; return nil }

// TestHubClosesAListenerThatFails: hosts that come later are refused at once and do not wait.
func TestHubClosesAListenerThatFails(t *testing.T) {
	l := &broken{}
	err := hosts.NewHub(hosts.Config{Identity: identity("hub")}).Serve(t.Context(), l)
	if !errors.Is(err, syscall.EBADF) || !l.closed {
		t.Errorf("error %v, closed %v, want that of the listener, which is closed", err, l.closed)
	}
}

// strangers connect and say a byte now and then, so that each lasts longer than patience.
func strangers(t *testing.T, where string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for range n {
		c, err := net.Dial("tcp", where) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			for ctx.Err() == nil {
				if _, err := c.Write([]byte{1}); err != nil {
					return
				}
				time.Sleep(3 * time.Second)
			}
		}()
	}
}

// TestStrangersAreBounded: connections that say nothing, or little by little, are closed,
// those beyond a bound at once; a host joins afterwards.
func TestStrangersAreBounded(t *testing.T) {
	s := newSite(t, "")
	strangers(t, s.where, 70)
	s.await("the ones beyond the bound refused", func(c hosts.Counts) bool { return c.Refused >= 6 })
	s.await("all of them refused", func(c hosts.Counts) bool { return c.Refused == 70 })
	s.join(&hosts.Host{Identity: identity("m")}, nil)
	s.hosts(1)
	cfg := smallConfig()
	cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
	updates, got := learn(t, cfg, func(made int) bool { return s.hub.Counts().Passes > 0 || made == 100 })
	if _, want := learn(t, smallConfig(), func(made int) bool { return made == updates }); !cmp.Equal(got, want) {
		t.Error("the state has other bits than that of one process")
	}
}
