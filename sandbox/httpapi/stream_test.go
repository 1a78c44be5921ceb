package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
)

// serveStreams returns a server that speaks HTTP/2 too.
func serveStreams(t testing.TB, exec sandbox.Executor, cfg httpapi.Config) *httptest.Server {
	t.Helper()
	return start(t, httpapi.NewHandler(exec, cfg))
}

func start(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = protocols(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(true)
	return p
}

func dial(t testing.TB, address string, opts httpapi.Options) *httpapi.Stream {
	t.Helper()
	s, err := httpapi.Dial(context.Background(), address, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// gate is an executor that tells which calls started and holds them until they
// are let go or their context ends.
type gate struct {
	started   chan string
	deadlines chan time.Time // of the calls that started and have one
	ended     chan string    // contexts that ended
	release   chan struct{}
	stdout    string
}

func newGate() *gate {
	return &gate{
		started: make(chan string, 1<<16), deadlines: make(chan time.Time, 1<<16),
		ended: make(chan string, 1<<16), release: make(chan struct{}),
	}
}

func (g *gate) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if at, ok := ctx.Deadline(); ok {
		g.deadlines <- at
	}
	g.started <- req.ID
	select {
	case <-g.release:
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: g.stdout}, nil
	case <-ctx.Done():
		g.ended <- req.ID
		return sandbox.Result{}, ctx.Err()
	}
}

// due is a context whose deadline is an hour away and passes when the test says
// so: a call is sure to arrive before.
type due struct {
	context.Context
	over chan struct{}
}

func newDue(t *testing.T) due { return due{Context: t.Context(), over: make(chan struct{})} }

func (d due) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (d due) Done() <-chan struct{} { return d.over }

func (d due) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// checkDeadline fails when at is not what became of the deadline of a due.
func checkDeadline(t *testing.T, at time.Time) {
	t.Helper()
	if left := time.Until(at); left > time.Hour || left < 50*time.Minute {
		t.Errorf("the executor is left %v, want what is left of an hour", left)
	}
}

// receive fails when nothing comes.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

// eventually fails when f stays false.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 1000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func TestStreamCarriesManyCalls(t *testing.T) {
	server := serveStreams(t, &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: req.Code}, nil
	}}, httpapi.Config{Load: func() httpapi.Load { return httpapi.Load{Slots: 7, Queue: 9} }})
	s := dial(t, server.URL, httpapi.Options{})
	if got, want := s.Load(), (httpapi.Load{Slots: 7, Queue: 9}); got != want {
		t.Errorf("got load %+v, want %+v", got, want)
	}
	var calls sync.WaitGroup
	for i := range 2000 {
		calls.Go(func() {
			id, code := fmt.Sprint(i), fmt.Sprintf("print(%d)\n", i)
			if i%10 == 0 {
				id = "" // calls without a name do not meet
			}
			res, err := s.Execute(t.Context(), sandbox.Request{ID: id, Code: code})
			if err != nil || res.Stdout != code || res.ID != id {
				t.Errorf("call %d: got %+v, %v", i, res, err)
			}
		})
	}
	calls.Wait()
}

func TestStreamCarriesEveryField(t *testing.T) {
	want := sandbox.Result{
		ID: "a", Status: sandbox.StatusError, Stdout: "o<\u2028>\x00", Stderr: "e", ExitCode: 3, Value: "v",
		Error:  &sandbox.PythonError{Type: "T", Message: "m", Line: 4, Source: "s"},
		Reason: "r", Usage: sandbox.Usage{Wall: 1, CPU: 2, PeakMemory: 3, Queue: 4},
	}
	req := sandbox.Request{
		ID: "a", Code: "c\x00\"\\", Stdin: "i", Fixture: "f", Profile: sandbox.ProfileNumeric, Run: "run", Session: "s",
		History: []string{"x = 1", ""}, Limits: sandbox.Limits{Wall: 1, CPU: 2, Memory: 3, Output: 4},
	}
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return want, nil }}
	got, err := dial(t, serveStreams(t, fake, httpapi.Config{}).URL, httpapi.Options{}).Execute(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("result (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(fake.Requests(), []sandbox.Request{req}); diff != "" {
		t.Errorf("request (-got +want):\n%s", diff)
	}
}

func TestStreamKeepsTheMeaningOfErrors(t *testing.T) {
	var give error
	server := serveStreams(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, give
	}}, httpapi.Config{})
	c, err := httpapi.NewClient(server.URL, httpapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, exec := range map[string]sandbox.Executor{
		"stream": dial(t, server.URL, httpapi.Options{}), "client": c, "batch": batchOf1{c},
	} {
		give = &sandbox.Overloaded{Detail: "4 calls wait", RetryAfter: 1700 * time.Millisecond}
		_, err := exec.Execute(t.Context(), sandbox.Request{ID: "a"})
		if !errors.Is(err, sandbox.ErrOverloaded) || sandbox.RetryAfter(err, 0) != 1700*time.Millisecond || err.Error() != give.Error() {
			t.Errorf("%s: got %v after %v, want %v", name, err, sandbox.RetryAfter(err, 0), give)
		}
		give = fmt.Errorf("%w: the last interpreter died", sandbox.ErrUnavailable)
		if _, err = exec.Execute(t.Context(), sandbox.Request{ID: "a"}); !errors.Is(err, sandbox.ErrUnavailable) || err.Error() != give.Error() {
			t.Errorf("%s: got %v, want %v", name, err, give)
		}
	}
}

// batchOf1 is an executor of batches of one call.
type batchOf1 struct{ c *httpapi.Client }

func (b batchOf1) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	results, errs := b.c.ExecuteBatch(ctx, []sandbox.Request{req})
	return results[0], errs[0]
}

func TestStreamRefusesWhatTheServerWould(t *testing.T) {
	fake := &sandboxtest.Fake{}
	s := dial(t, serveStreams(t, fake, httpapi.Config{}).URL, httpapi.Options{})
	for want, req := range map[string]sandbox.Request{
		"limit of 8388608 bytes": {ID: "a", Code: strings.Repeat("x", 9<<20)},
		"limit of 256":           {ID: strings.Repeat("i", 300)},
	} {
		res, err := s.Execute(t.Context(), req)
		if err != nil || res.Status != sandbox.StatusRefused || res.ID != req.ID || !strings.Contains(res.Reason, want) {
			t.Errorf("got %+v, %v, want refused with %q", res, err, want)
		}
	}
	if n := len(fake.Requests()); n != 0 {
		t.Errorf("%d calls were executed", n)
	}
	if _, err := s.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestOneIDNamesOneProgram(t *testing.T) {
	var runs atomic.Int32
	hold := make(chan struct{})
	server := serveStreams(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		<-hold
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: fmt.Sprint(runs.Add(1))}, nil
	}}, httpapi.Config{})
	streams := []*httpapi.Stream{dial(t, server.URL, httpapi.Options{}), dial(t, server.URL, httpapi.Options{})}
	var calls sync.WaitGroup
	for i := range 16 {
		calls.Go(func() {
			req := sandbox.Request{ID: "same", Code: "x", History: []string{fmt.Sprint(i)}}
			res, err := streams[i%2].Execute(t.Context(), req)
			if err != nil || res.Stdout != "1" {
				t.Errorf("got %+v, %v, want the first answer", res, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(hold)
	calls.Wait()
	for _, other := range []sandbox.Request{{Code: "y"}, {Code: "x", Stdin: "1"}, {Code: "x", Limits: sandbox.Limits{CPU: 1}}, {Code: "x", Session: "s"}} {
		other.ID = "same"
		res, err := streams[0].Execute(t.Context(), other)
		if !errors.Is(err, sandbox.ErrConflict) || errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%+v: got %+v, %v, want a conflict", other, res, err)
		}
	}
	body := `{"id":"same","code":"z"}`
	resp, err := http.Post(server.URL+httpapi.PathExecute, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusConflict || !strings.Contains(string(text), `"conflict"`) {
		t.Errorf("got %s %s, want 409 conflict", resp.Status, text)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d programs ran, want 1", n)
	}
}

// TestRunsShareNoIDs: two runs use the same ids, sessions and programs at once. Each
// gets its own answers, repeated ones as well, and neither blocks the other.
func TestRunsShareNoIDs(t *testing.T) {
	server := serveStreams(t, &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "secret of " + req.Run}, nil
	}}, httpapi.Config{})
	s := dial(t, server.URL, httpapi.Options{})
	for range 2 { // the second time from the window
		for _, run := range []string{"a", "b", ""} {
			for _, session := range []string{"", "s"} {
				req := sandbox.Request{ID: "same" + session, Code: "print(secret)", Run: run, Session: session}
				if res, err := s.Execute(t.Context(), req); err != nil || res.Stdout != "secret of "+run {
					t.Errorf("run %q, session %q: got %+v, %v, want the answer of the run", run, session, res, err)
				}
			}
		}
	}
	other := sandbox.Request{ID: "same", Code: "print(2)", Run: "c"}
	if res, err := s.Execute(t.Context(), other); err != nil || res.Status != sandbox.StatusOK {
		t.Errorf("another program under the id of another run: got %+v, %v", res, err)
	}
}

func TestCancelledCallFreesItsSlot(t *testing.T) {
	g := newGate()
	s := dial(t, serveStreams(t, g, httpapi.Config{}).URL, httpapi.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Execute(ctx, sandbox.Request{ID: "a"})
		failed <- err
	}()
	receive(t, g.started)
	cancel()
	if err := receive(t, failed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	// The same ID at once: it must not get the answer to the cancelled call.
	again := make(chan error, 1)
	go func() {
		_, err := s.Execute(t.Context(), sandbox.Request{ID: "a"})
		again <- err
	}()
	if got := receive(t, g.ended); got != "a" {
		t.Errorf("call %q ended", got)
	}
	receive(t, g.started)
	close(g.release)
	if err := receive(t, again); err != nil {
		t.Errorf("the same call later: %v", err)
	}
}

func TestDeadlineTravels(t *testing.T) {
	g := newGate()
	server := serveStreams(t, g, httpapi.Config{})
	raw := open(t, server)
	raw.send(`{"call":{"id":"a"},"deadline_ms":20}`)
	if f := raw.answer(); f.ID != "a" || f.Error == nil || f.Error.Code != httpapi.CodeDeadline {
		t.Errorf("got %+v, want a deadline", f)
	}
	receive(t, g.started)
	receive(t, g.deadlines)
	receive(t, g.ended)
	s := dial(t, server.URL, httpapi.Options{})
	ctx := newDue(t)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Execute(ctx, sandbox.Request{ID: "b"})
		failed <- err
	}()
	receive(t, g.started)
	checkDeadline(t, receive(t, g.deadlines))
	close(ctx.over)
	if err := receive(t, failed); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	receive(t, g.ended)
}

func TestClosedStreamCancelsItsCalls(t *testing.T) {
	g := newGate()
	server := serveStreams(t, g, httpapi.Config{})
	s, other := dial(t, server.URL, httpapi.Options{}), dial(t, server.URL, httpapi.Options{})
	errs := make(chan error, 10)
	for i := range 10 {
		go func() {
			_, err := s.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i)})
			errs <- err
		}()
		receive(t, g.started)
	}
	alive := make(chan error, 1)
	go func() {
		_, err := other.Execute(t.Context(), sandbox.Request{ID: "other"})
		alive <- err
	}()
	receive(t, g.started)
	s.Close()
	for range 10 {
		if err := receive(t, errs); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
		}
		if id := receive(t, g.ended); id == "other" {
			t.Error("a call of another stream ended")
		}
	}
	receive(t, s.Done())
	if err := s.Err(); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if _, err := s.Execute(t.Context(), sandbox.Request{ID: "late"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("late: got %v, want %v", err, sandbox.ErrUnavailable)
	}
	close(g.release)
	if err := receive(t, alive); err != nil {
		t.Errorf("the other stream: %v", err)
	}
}

func TestLostServerIsUnavailable(t *testing.T) {
	g := newGate()
	server := serveStreams(t, g, httpapi.Config{})
	s := dial(t, server.URL, httpapi.Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := s.Execute(t.Context(), sandbox.Request{ID: "a"})
		failed <- err
	}()
	receive(t, g.started)
	server.CloseClientConnections()
	if err := receive(t, failed); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if id := receive(t, g.ended); id != "a" {
		t.Errorf("call %q ended", id)
	}
	server.Close()
	if _, err := httpapi.Dial(t.Context(), server.URL, httpapi.Options{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("dial: got %v, want %v", err, sandbox.ErrUnavailable)
	}
}

func TestLoadIsSaidOnChangeAndADrainedStreamEnds(t *testing.T) {
	t.Parallel()
	g := newGate()
	var draining atomic.Bool
	var busy atomic.Int64
	server := serveStreams(t, g, httpapi.Config{Load: func() httpapi.Load {
		return httpapi.Load{Slots: 4, Busy: int(busy.Load()), Draining: draining.Load()}
	}})
	s := dial(t, server.URL, httpapi.Options{})
	done := make(chan error, 1)
	go func() {
		_, err := s.Execute(t.Context(), sandbox.Request{ID: "a"})
		done <- err
	}()
	receive(t, g.started)
	busy.Store(1)
	eventually(t, "the load of every second", func() bool { return s.Load().Busy == 1 })
	draining.Store(true)
	eventually(t, "the drain", func() bool { return s.Load().Draining })
	select {
	case <-s.Done():
		t.Error("the stream ended before its call")
	case <-time.After(300 * time.Millisecond):
	}
	close(g.release)
	if err := receive(t, done); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	receive(t, s.Done())
}

func TestToldHowToReachAServer(t *testing.T) {
	t.Parallel()
	fake := &sandboxtest.Fake{}
	secret := httptest.NewUnstartedServer(httpapi.NewHandler(fake, httpapi.Config{Token: "t"}))
	secret.EnableHTTP2 = true
	secret.StartTLS()
	defer secret.Close()
	trust := secret.Client().Transport.(*http.Transport).TLSClientConfig

	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unix := &http.Server{Handler: httpapi.NewHandler(fake, httpapi.Config{}), Protocols: protocols(true)}
	go func() { _ = unix.Serve(listener) }() // ends with Close
	defer unix.Close()

	old := httptest.NewUnstartedServer(httpapi.NewHandler(fake, httpapi.Config{}))
	old.StartTLS() // HTTP/1.1 only
	defer old.Close()
	oldTrust := old.Client().Transport.(*http.Transport).TLSClientConfig

	host := strings.TrimPrefix(secret.URL, "https://")
	for _, c := range []struct {
		name, address string
		opts          httpapi.Options
		want          string // of the error of a stream; empty for none
	}{
		{"TLS", secret.URL, httpapi.Options{Token: "t", TLS: trust}, ""},
		{"TLS without a scheme", host, httpapi.Options{Token: "t", TLS: trust}, ""},
		{"Unix socket", httpapi.UnixPrefix + path, httpapi.Options{}, ""},
		{"wrong token", secret.URL, httpapi.Options{Token: "x", TLS: trust}, "bearer token"},
		{"unknown authority", secret.URL, httpapi.Options{Token: "t"}, "certificate"},
		{"no TLS", host, httpapi.Options{Token: "t"}, host},
		{"TLS without HTTP/2", old.URL, httpapi.Options{TLS: oldTrust}, "serves no streams"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := httpapi.Dial(t.Context(), c.address, c.opts)
			if c.want != "" {
				if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want unavailable with %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Execute(t.Context(), sandbox.Request{ID: c.name}); err != nil {
				t.Error(err)
			}
			client, err := httpapi.NewClient(c.address, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Execute(t.Context(), sandbox.Request{ID: c.name}); err != nil {
				t.Error(err)
			}
			if err := client.Health(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	c := client(t, old.URL, "")
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "x"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("an authority that is not trusted: got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if c, err = httpapi.NewClient(old.URL, httpapi.Options{TLS: oldTrust}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "x"}); err != nil {
		t.Errorf("a client of a server without HTTP/2: %v", err)
	}
	if _, err := httpapi.Dial(t.Context(), "http://a:1", httpapi.Options{TLS: &tls.Config{}}); err == nil {
		t.Error("TLS settings for an http address were accepted")
	}
}

// rawStream is a stream by hand.
type rawStream struct {
	t    *testing.T
	in   *io.PipeWriter
	body io.ReadCloser
	out  *bufio.Reader
}

func open(t *testing.T, server *httptest.Server) *rawStream {
	t.Helper()
	transport := &http.Transport{Protocols: protocols(false)}
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+httpapi.PathStream, r)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	raw := &rawStream{t: t, in: w, body: resp.Body, out: bufio.NewReader(resp.Body)}
	t.Cleanup(func() {
		resp.Body.Close()
		w.Close()
		transport.CloseIdleConnections()
	})
	return raw
}

func (r *rawStream) send(line string) {
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Error(err)
	}
}

// answer returns the next frame that is no load.
func (r *rawStream) answer() (f httpapi.ServerFrame) {
	for {
		line, err := r.out.ReadBytes('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		f = httpapi.ServerFrame{}
		if err := json.Unmarshal(line, &f); err != nil {
			r.t.Fatal(err)
		}
		if f.Load == nil {
			return f
		}
	}
}

func TestRepeatedIDOnAStreamIsAnsweredTwice(t *testing.T) {
	g := newGate()
	raw := open(t, serveStreams(t, g, httpapi.Config{}))
	for range 3 {
		raw.send(`{"call":{"id":"a"}}`)
	}
	receive(t, g.started)
	raw.send(`{"call":{"id":"b"}}`)
	raw.send(`{"cancel":"b"}`)
	if f := raw.answer(); f.ID != "b" || f.Error == nil || f.Error.Code != httpapi.CodeCancelled {
		t.Errorf("got %+v, want that b was cancelled", f)
	}
	raw.in.Close() // half of the stream: the calls in flight are answered
	close(g.release)
	for range 3 {
		if f := raw.answer(); f.ID != "a" || f.Result == nil {
			t.Errorf("got %+v, want the result of a", f)
		}
	}
	if rest, err := io.ReadAll(raw.out); err != nil || strings.Contains(string(rest), `"id"`) {
		t.Errorf("after the answers: %q, %v", rest, err)
	}
}
