package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
)

func TestClientUsesOneStream(t *testing.T) {
	var requests atomic.Int32
	handler := httpapi.NewHandler(&sandboxtest.Fake{}, httpapi.Config{})
	server := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	c := client(t, server.URL, "")
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			if _, err := c.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("100 calls made %d requests, want 1", n)
	}
}

// breaker is an executor that cuts every connection to its server when a call
// starts. It ends the call "stubborn" all the same, and others when it is told.
type breaker struct {
	runs  atomic.Int32
	sever func()
}

func (b *breaker) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	b.runs.Add(1)
	go b.sever()
	<-ctx.Done()
	if req.ID == "stubborn" {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: "late"}, nil
	}
	return sandbox.Result{}, ctx.Err()
}

func TestClientSendsACallOnceMore(t *testing.T) {
	b := &breaker{}
	server := serveStreams(t, b, httpapi.Config{})
	b.sever = server.CloseClientConnections
	c := client(t, server.URL, "")
	res, err := c.Execute(t.Context(), sandbox.Request{ID: "stubborn"})
	if err != nil || res.Stdout != "late" || b.runs.Load() != 1 {
		t.Errorf("got %+v, %v after %d runs, want the answer of the only run", res, err, b.runs.Load())
	}
	if _, err = c.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if n := b.runs.Load(); n != 3 {
		t.Errorf("the call was sent %d times, want 2", n-1)
	}
}

func TestEveryCallIsAnsweredWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	finished := make(map[string]int)
	server := serveStreams(t, executorFunc(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
		select {
		case <-time.After(time.Duration(len(req.ID)) * time.Millisecond):
		case <-ctx.Done():
			return sandbox.Result{}, ctx.Err()
		}
		mu.Lock()
		finished[req.ID]++
		mu.Unlock()
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Code}, nil
	}), httpapi.Config{})
	var cutter, calls sync.WaitGroup
	stop := make(chan struct{})
	cuts := 0
	cutter.Go(func() {
		for {
			select {
			case <-time.After(40 * time.Millisecond):
				server.CloseClientConnections()
				cuts++
			case <-stop:
				return
			}
		}
	})
	clients := []*httpapi.Client{client(t, server.URL, ""), client(t, server.URL, "")}
	const workers, each = 32, 30
	for w := range workers {
		calls.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				for {
					res, err := clients[w%2].Execute(t.Context(), sandbox.Request{ID: id, Code: "print " + id})
					if errors.Is(err, sandbox.ErrUnavailable) {
						continue
					}
					if err != nil || res.ID != id || res.Stdout != "print "+id {
						t.Errorf("%s: got %+v, %v", id, res, err)
					}
					break
				}
			}
		})
	}
	calls.Wait()
	close(stop)
	cutter.Wait()
	if len(finished) != workers*each || cuts == 0 {
		t.Errorf("%d of %d calls ran, with %d cuts", len(finished), workers*each, cuts)
	}
	for id, n := range finished {
		if n != 1 {
			t.Errorf("%s was answered by %d runs, want 1", id, n)
		}
	}
}

type executorFunc func(ctx context.Context, req sandbox.Request) (sandbox.Result, error)

func (f executorFunc) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return f(ctx, req)
}

func TestClientPausesBetweenAttempts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int32
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			conn.Close()
		}
	})
	c := client(t, listener.Addr().String(), "")
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			_, err := c.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i)})
			if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), listener.Addr().String()) {
				t.Errorf("got %v, want unavailable with the address", err)
			}
		})
	}
	calls.Wait()
	if n := attempts.Load(); n > 10 {
		t.Errorf("200 calls made %d connections", n)
	}
	listener.Close()
	accepting.Wait()
}

func TestClientComesBackWithItsServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(l net.Listener) *http.Server {
		s := &http.Server{Handler: httpapi.NewHandler(&sandboxtest.Fake{}, httpapi.Config{}), Protocols: protocols(true)}
		go func() { _ = s.Serve(l) }() // ends with Close
		return s
	}
	server := serve(listener)
	c := client(t, listener.Addr().String(), "")
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("without a server: got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if listener, err = net.Listen("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	server = serve(listener)
	defer server.Close()
	eventually(t, "the server is found again", func() bool {
		_, err := c.Execute(t.Context(), sandbox.Request{ID: "b"})
		return err == nil
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	g := newGate()
	server := httptest.NewUnstartedServer(httpapi.NewHandler(g, httpapi.Config{}))
	server.Config.Protocols = protocols(true)
	server.Start()
	defer server.Close()
	c, err := httpapi.NewClient(server.URL, httpapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Execute(t.Context(), sandbox.Request{ID: "a"})
		failed <- err
	}()
	receive(t, g.started)
	c.Close()
	c.Close()
	if err := receive(t, failed); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("after Close: got %v, want %v", err, sandbox.ErrUnavailable)
	}
}

func TestOverloadWithoutAWordOfThisAPI(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == httpapi.PathStream {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Retry-After", "7")
		http.Error(w, "go away", http.StatusTooManyRequests)
	}))
	defer server.Close()
	c := client(t, server.URL, "")
	for name, exec := range map[string]sandbox.Executor{"execute": c, "batch": batchOf1{c}} {
		_, err := exec.Execute(t.Context(), sandbox.Request{ID: "a"})
		if sandbox.RetryAfter(err, 0) != 7*time.Second {
			t.Errorf("%s: got %v after %v, want an overload for 7 s", name, err, sandbox.RetryAfter(err, 0))
		}
	}
}

func TestSessionsAreClosed(t *testing.T) {
	var closed []string
	server := serveStreams(t, &sandboxtest.Fake{}, httpapi.Config{Token: "t", CloseSession: func(run, name string) bool {
		closed = append(closed, run+"|"+name)
		return name != "gone"
	}})
	c := client(t, server.URL, "t")
	for _, session := range []struct {
		run, name string
		want      bool
	}{{"", "a/b c", true}, {"r/s&run=?#+ %41", "a?run=x", true}, {"r", "gone", false}} {
		was, err := c.CloseSession(t.Context(), session.run, session.name)
		if was != session.want || err != nil || closed[len(closed)-1] != session.run+"|"+session.name {
			t.Errorf("%+v: got %v, %v for %q", session, was, err, closed)
		}
	}
	for _, query := range []string{"?run=a&run=b", "?Run=a", "?run=%zz", "?run=a;b"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, server.URL+httpapi.PathSessions+"a"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer t")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest || len(closed) != 3 {
			t.Errorf("%s: got %s, want a refusal: another run's session must not end", query, resp.Status)
		}
	}
	if _, err := client(t, server.URL, "").CloseSession(t.Context(), "", "a"); !errors.Is(err, sandbox.ErrUnavailable) || len(closed) != 3 {
		t.Errorf("without the token: got %v", err)
	}
	plain := client(t, serveStreams(t, &sandboxtest.Fake{}, httpapi.Config{}).URL, "")
	if was, err := plain.CloseSession(t.Context(), "", "a"); was || err != nil {
		t.Errorf("without sessions: got %v, %v", was, err)
	}
}

func TestBatchIsAnsweredLineByLine(t *testing.T) {
	g := newGate()
	fast := &sandboxtest.Fake{}
	server := serveStreams(t, executorFunc(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
		if req.ID == "slow" {
			return g.Execute(ctx, req)
		}
		return fast.Execute(ctx, req)
	}), httpapi.Config{})
	body := `{"calls":[{"id":"slow"},{"id":"x","cod":1},{"id":"fast"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+httpapi.PathBatch, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	next := func() (l httpapi.BatchLine) {
		text, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return l
	}
	got := map[int]httpapi.BatchLine{}
	for range 2 { // while the first call still runs
		l := next()
		got[l.Index] = l
	}
	if got[1].Error == nil || got[1].ID != "x" || got[2].Result == nil || got[2].ID != "fast" {
		t.Errorf("got %+v", got)
	}
	close(g.release)
	if l := next(); l.Index != 0 || l.ID != "slow" || l.Result == nil {
		t.Errorf("got %+v, want the slow call", l)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// early is an executor behind a gateway whose node says before the gateway's own timer that the
// deadline of a call is over, or that it failed for a deadline of its own.
type early struct{}

func (early) Execute(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	if req.ID == "own" {
		return sandbox.Result{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, context.DeadlineExceeded)
	}
	return sandbox.Result{}, context.DeadlineExceeded
}

func TestADeadlineThatOthersSawFirst(t *testing.T) {
	c := client(t, serveStreams(t, early{}, httpapi.Config{}).URL, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Execute(ctx, sandbox.Request{ID: "a"}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if _, err := c.Execute(ctx, sandbox.Request{ID: "own"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("without a deadline: got %v, want %v", err, sandbox.ErrUnavailable)
	}
}
