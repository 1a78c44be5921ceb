package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
)

// held is an executor whose calls end together.
type held struct {
	started atomic.Int64
	release chan struct{}
	stdout  string
}

func (h *held) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	h.started.Add(1)
	select {
	case <-h.release:
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: h.stdout}, nil
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

// bounded is a server of a handler with bounds of its own.
type bounded struct {
	*handler
	url       string
	transport *http.Transport // takes little without being read
	ended     atomic.Int64    // streams
}

func serveBounded(t *testing.T, exec sandbox.Executor, change func(*bounds)) *bounded {
	t.Helper()
	b := &bounded{handler: newHandler(exec, Config{})}
	change(&b.bounds)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	routes := b.routes()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer b.ended.Add(1)
		routes.ServeHTTP(w, r)
	}))
	server.Config.Protocols = protocols
	server.Start()
	t.Cleanup(server.Close)
	b.url = server.URL
	b.transport = &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
	t.Cleanup(b.transport.CloseIdleConnections)
	return b
}

// open starts a stream by hand.
func (b *bounded) open(t *testing.T) (io.Writer, io.Reader) {
	t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+PathStream, r)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); w.Close() })
	return w, resp.Body
}

func TestStreamOfACallerThatDoesNotReadEnds(t *testing.T) {
	t.Parallel()
	const calls, size = 64, 64 << 10
	for name, change := range map[string]func(*bounds){
		"more is held than allowed":     func(b *bounds) { b.held = calls * size / 2 },
		"a write takes too long":        func(b *bounds) { b.stall = 200 * time.Millisecond },
		"the last write takes too long": func(b *bounds) { b.stall = 200 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			exec := &held{release: make(chan struct{}), stdout: strings.Repeat("x", size)}
			b := serveBounded(t, exec, change)
			in, out := b.open(t)
			for i := range calls {
				fmt.Fprintf(in, "{\"call\":{\"id\":\"%d\"}}\n", i)
			}
			waitFor(t, func() bool { return exec.started.Load() == calls })
			close(exec.release)
			if name == "the last write takes too long" {
				in.(io.Closer).Close()
			}
			waitFor(t, func() bool { return b.ended.Load() == 1 })
			if n, err := io.Copy(io.Discard, out); err == nil || n > calls*size/2 {
				t.Errorf("read %d bytes, then %v, want the end of the stream", n, err)
			}
			// Nothing is lost: who asks again gets the answers that are there, over a
			// stream whose time does not depend on how busy this machine is.
			b.bounds = defaultBounds(b.cfg.Budget)
			s, err := Dial(t.Context(), b.url, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for i := range calls {
				res, err := s.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i)})
				if err != nil || len(res.Stdout) != size {
					t.Fatalf("call %d: got %d bytes, %v", i, len(res.Stdout), err)
				}
			}
			if n := exec.started.Load(); n != calls {
				t.Errorf("%d programs ran for %d calls", n, calls)
			}
		})
	}
}

func TestStreamTakesNoMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bounds){
		"calls": func(b *bounds) { b.calls = 10 },
		"bytes": func(b *bounds) { b.lineBytes = 10 * 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			exec := &held{release: make(chan struct{})}
			in, out := serveBounded(t, exec, change).open(t)
			sent := make(chan error, 1)
			go func() {
				var err error
				for i := range 100 {
					_, werr := fmt.Fprintf(in, "{\"call\":{\"id\":\"%d\",\"code\":%q}}\n", i, strings.Repeat("x", 1000))
					err = errors.Join(err, werr)
				}
				sent <- err
			}()
			waitFor(t, func() bool { return exec.started.Load() >= 9 })
			time.Sleep(100 * time.Millisecond)
			if n := exec.started.Load(); n > 10 {
				t.Errorf("%d calls are in flight, want 10", n)
			}
			close(exec.release)
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			in.(io.Closer).Close()
			text, err := io.ReadAll(out)
			if n := strings.Count(string(text), `"result"`); n != 100 || err != nil {
				t.Errorf("%d of 100 calls were answered, %v", n, err)
			}
		})
	}
}

func TestCallerThatDoesNotReadIsNotServed(t *testing.T) {
	t.Parallel()
	const size, unsent = 16 << 10, 64 << 10
	exec := &held{release: make(chan struct{}), stdout: strings.Repeat("x", size)}
	close(exec.release)
	in, out := serveBounded(t, exec, func(b *bounds) { b.unsent = unsent }).open(t)
	stopped := func(n int64) bool { // a call is sent and never starts
		if n*size <= unsent { // it does, however busy this machine is
			waitFor(t, func() bool { return exec.started.Load() == n })
			return false
		}
		for range 30 {
			if exec.started.Load() == n {
				return false
			}
			time.Sleep(10 * time.Millisecond)
		}
		return true
	}
	sent := int64(0)
	for sent == 0 || !stopped(sent) {
		if sent++; sent > 100 {
			t.Fatal("the stream is served without end")
		}
		fmt.Fprintf(in, "{\"call\":{\"id\":\"%d\"}}\n", sent)
	}
	if sent*size < unsent || sent*size > 6*unsent {
		t.Errorf("%d KiB of answers wait for a caller that does not read", sent*size>>10)
	}
	in.(io.Closer).Close()
	text, err := io.ReadAll(out)
	if n := strings.Count(string(text), `"result"`); int64(n) != sent || err != nil {
		t.Errorf("%d of %d calls were answered, %v", n, sent, err)
	}
}

func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for range 1000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it never came to that")
}
