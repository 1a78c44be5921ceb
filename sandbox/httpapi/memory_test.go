package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
)

// heap is what live and dead objects of this process take now.
func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// peak watches the heap while f runs and returns by how much it grew at most. The
// collector runs at every tenth of growth, so that garbage hardly counts.
func peak(t *testing.T, f func()) int64 {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	before, most := heap(), int64(0)
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				most = max(most, heap()-before)
			}
		}
	}()
	f()
	close(ended)
	<-watched
	return most
}

// loud answers with a text of as many control characters as a call may print, made when
// it runs, as a program's output is.
func loud(calls *atomic.Int64) executorFunc {
	return func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
		calls.Add(1)
		time.Sleep(10 * time.Millisecond)
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: strings.Repeat("\x01", int(req.Limits.Output))}, nil
	}
}

// TestAnswersOfControlCharactersStayWithinTheBudget: sixteen of 4 MiB each are 400 MiB
// of JSON. They wait for each other, and none is lost.
func TestAnswersOfControlCharactersStayWithinTheBudget(t *testing.T) {
	const calls, output = 16, 4 << 20
	b := budget.New(128 << 20)
	var ran atomic.Int64
	server := serveStreams(t, loud(&ran), httpapi.Config{Budget: b})
	most := peak(t, func() {
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				body := fmt.Sprintf(`{"id":"%d","code":"x","limits":{"output_bytes":%d}}`, i, output)
				resp, err := http.Post(server.URL+httpapi.PathExecute, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				n, err := io.Copy(io.Discard, resp.Body)
				if err != nil || resp.StatusCode != http.StatusOK || n < 6*output {
					t.Errorf("call %d: %s with %d bytes, %v", i, resp.Status, n, err)
				}
			})
		}
		all.Wait()
	})
	// What is charged, and the collector's tenth with what it has not seen yet.
	if bound := (b.Answers.Most() + b.Repeats) * 5 / 4; most > bound {
		t.Errorf("the heap grew by %d MiB, above %d", most>>20, bound>>20)
	}
	if held := b.Answers.Held(); held != 0 || ran.Load() != calls {
		t.Errorf("%d bytes are still charged, %d programs ran", held, ran.Load())
	}
	t.Logf("the heap grew by %d MiB", most>>20)
}

// TestOurClientGetsControlCharactersInBase64: no stream ends over an answer whose JSON
// would be longer than a line may be.
func TestOurClientGetsControlCharactersInBase64(t *testing.T) {
	var ran atomic.Int64
	exec := loud(&ran)
	both := executorFunc(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
		res, err := exec(ctx, req)
		res.Stderr = res.Stdout
		return res, err
	})
	server := serveStreams(t, both, httpapi.Config{})
	stream, plain := dial(t, server.URL, httpapi.Options{}), client(t, server.URL, "")
	req := sandbox.Request{ID: "a", Limits: sandbox.Limits{Output: 12 << 20}}
	for name, call := range map[string]func() (sandbox.Result, error){
		"stream": func() (sandbox.Result, error) { return stream.Execute(t.Context(), req) },
		"batch": func() (sandbox.Result, error) {
			res, errs := plain.ExecuteBatch(t.Context(), []sandbox.Request{req})
			return res[0], errs[0]
		},
	} {
		res, err := call()
		if err != nil || len(res.Stdout) != 12<<20 || len(res.Stderr) != 12<<20 || strings.Trim(res.Stdout+res.Stderr, "\x01") != "" {
			t.Errorf("%s: %d and %d bytes, %v", name, len(res.Stdout), len(res.Stderr), err)
		}
	}
	if err := stream.Err(); err != nil || ran.Load() != 1 {
		t.Errorf("the stream: %v; %d programs ran", err, ran.Load())
	}
}

// unfinished sends the head of a request and n bytes of its body, which does not end.
func unfinished(t *testing.T, url, path string, announced, n int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have been first
	go func() {
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", path, announced)
		for blanks := make([]byte, 32<<10); n > 0; n -= len(blanks) {
			if _, err := conn.Write(blanks[:min(n, len(blanks))]); err != nil {
				return // a server that refuses a body ends the connection
			}
		}
	}()
	return conn
}

// answerOf reads the status and the body of what conn was answered.
func answerOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second)) // a socket takes it
	text, err := io.ReadAll(conn)
	if err != nil && len(text) == 0 {
		t.Fatalf("no answer: %v", err)
	}
	return string(text)
}

// TestUnfinishedBodiesStayWithinTheBudget: 24 connections of 60 MiB each that do not
// end are charged as they arrive; the rest is refused, and a call beside them runs.
func TestUnfinishedBodiesStayWithinTheBudget(t *testing.T) {
	b := budget.New(256 << 20)
	server := serveStreams(t, &sandboxtest.Fake{}, httpapi.Config{Budget: b, Patience: 500 * time.Millisecond})
	var conns []net.Conn
	most := peak(t, func() {
		for range 24 {
			conns = append(conns, unfinished(t, server.URL, httpapi.PathBatch, 60<<20, 24<<20))
		}
		refused, slow := 0, 0
		for _, conn := range conns {
			switch text := answerOf(t, conn); {
			case strings.Contains(text, "413 "), strings.Contains(text, "429 ") && strings.Contains(text, `"overloaded"`):
				refused++
			case strings.Contains(text, "408 ") && strings.Contains(text, `"slow_body"`):
				slow++
			}
		}
		if refused+slow != len(conns) {
			t.Errorf("%d were refused and %d given up, of %d", refused, slow, len(conns))
		}
	})
	if bound := b.Bodies.Most() * 5 / 4; most > bound {
		t.Errorf("the heap grew by %d MiB, above %d", most>>20, bound>>20)
	}
	eventually(t, "everything is given back", func() bool { return b.Bodies.Held() == 0 })
	t.Logf("the heap grew by %d MiB", most>>20)
}

// TestSlowBodyIsNamed: a short body that does not come, on each way in.
func TestSlowBodyIsNamed(t *testing.T) {
	server := serveStreams(t, &sandboxtest.Fake{}, httpapi.Config{Patience: 50 * time.Millisecond})
	for _, path := range []string{httpapi.PathExecute, httpapi.PathBatch} {
		text := answerOf(t, unfinished(t, server.URL, path, 100, 1))
		if !strings.HasPrefix(text, "HTTP/1.1 408 ") || !strings.Contains(text, `"code":"slow_body"`) {
			t.Errorf("%s: %q", path, text)
		}
	}
	r := open(t, server)
	if _, err := io.WriteString(r.in, `{"call":{"id":"a"`); err != nil {
		t.Fatal(err)
	}
	if f := r.answer(); f.Error == nil || f.Error.Code != httpapi.CodeSlow {
		t.Errorf("stream: %+v", f)
	}
}

// TestFullBudgetRefusesAndOthersAreServed: a stream whose calls find no room says so for
// each of them.
func TestFullBudgetRefuses(t *testing.T) {
	b := budget.New(8 << 20)
	server := serveStreams(t, &sandboxtest.Fake{}, httpapi.Config{Budget: b})
	s := dial(t, server.URL, httpapi.Options{})
	call := sandbox.Request{Code: strings.Repeat("x", 512<<10)}
	if _, err := s.Execute(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	b.Bodies.Add("somebody else", b.Bodies.Most())
	_, err := s.Execute(t.Context(), call)
	if after := sandbox.RetryAfter(err, 0); after != time.Second || !strings.Contains(err.Error(), "bodies hold") {
		t.Errorf("a call: %v, to come back after %v", err, after)
	}
	b.Bodies.Release("somebody else", b.Bodies.Most())
	if _, err := s.Execute(t.Context(), call); err != nil {
		t.Errorf("after that: %v", err)
	}
	res, err := s.Execute(t.Context(), sandbox.Request{ID: "much", Limits: sandbox.Limits{Output: 16 << 20}})
	if err != nil || res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, "--budget") {
		t.Errorf("more output than one caller may have: %+v, %v", res, err)
	}
}
