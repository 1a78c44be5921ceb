package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
	"temper/sandbox/httpapi"
)

// long answers with as much as the call may print.
var long = executorFunc(func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: strings.Repeat("x", int(req.Limits.Output))}, nil
})

// TestClientsThatNeverReadDoNotHoldUpOthers: they ask in every way and read nothing. What
// waits for them stays within the budget, and a neighbour of them is served.
func TestClientsThatNeverReadDoNotHoldUpOthers(t *testing.T) {
	b := budget.New(64 << 20)
	server := serveStreams(t, long, httpapi.Config{Budget: b})
	address := strings.TrimPrefix(server.URL, "http://")
	call := func(i int) string {
		return fmt.Sprintf(`{"id":"%d","code":"x","limits":{"output_bytes":%d}}`, i, 1<<20)
	}
	var calls []string
	for i := range 32 {
		calls = append(calls, call(i))
	}
	batch := `{"calls":[` + strings.Join(calls, ",") + `]}`
	most := peak(t, func() {
		for _, request := range []struct{ path, accept, body string }{
			{httpapi.PathExecute, "", call(0)},
			{httpapi.PathBatch, "", batch},
			{httpapi.PathBatch, "application/x-ndjson", batch},
		} {
			for range 4 {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() }) // the server may have been first
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s",
					request.path, request.accept, len(request.body), request.body)
			}
		}
		stream := open(t, server)
		go func() {
			for i := range 32 {
				if _, err := io.WriteString(stream.in, `{"call":`+call(100+i)+"}\n"); err != nil {
					return // the server has ended it, or the test
				}
			}
		}()
		// Calls that print little, as nearly all do, need no room of their own.
		neighbour := dial(t, server.URL, httpapi.Options{})
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			res, err := neighbour.Execute(ctx, sandbox.Request{ID: fmt.Sprint("n", i), Limits: sandbox.Limits{Output: 10}})
			cancel()
			if err != nil || res.Stdout != "xxxxxxxxxx" {
				t.Fatalf("a neighbour: %+v, %v", res, err)
			}
		}
	})
	if bound := (b.Answers.Most() + b.Repeats + b.Bodies.Most()) * 5 / 4; most > bound {
		t.Errorf("the heap grew by %d MiB, above %d", most>>20, bound>>20)
	}
	t.Logf("the heap grew by %d MiB", most>>20)
}

// connections opens n connections at once, each with a call, and counts the answers.
func connections(t *testing.T, address string, n int) (answered int) {
	t.Helper()
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close() // it has been read
		}
	}()
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
		conns = append(conns, conn)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, conn := range conns {
		all.Go(func() {
			body := fmt.Sprintf(`{"id":"%d","code":"x","limits":{"output_bytes":10}}`, i)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", httpapi.PathExecute, len(body), body)
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute)) // a socket takes it
			resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
			if err != nil {
				return
			}
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(text), fmt.Sprintf(`"id":"%d"`, i)) {
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return answered
}

// TestManyConnectionsAtOnce is a sample of TestTenThousandConnectionsAtOnce.
func TestManyConnectionsAtOnce(t *testing.T) {
	server := serveStreams(t, long, httpapi.Config{Budget: budget.New(64 << 20)})
	if n := connections(t, strings.TrimPrefix(server.URL, "http://"), 1000); n != 1000 {
		t.Errorf("%d of 1,000 were answered", n)
	}
}

// TestTenantsShareNothingButTheNode: two with equal ids, sessions and names at once, on
// every way in, each get their own.
func TestTenantsShareNothingButTheNode(t *testing.T) {
	exec := executorFunc(func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
		time.Sleep(time.Millisecond)
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Run + "/" + req.Session + "/" + req.Code}, nil
	})
	server := serveStreams(t, exec, httpapi.Config{})
	stream, plain := dial(t, server.URL, httpapi.Options{}), client(t, server.URL, "")
	var all sync.WaitGroup
	for _, run := range []string{"a", "b"} {
		for i := range 20 {
			req := sandbox.Request{ID: fmt.Sprint(i), Run: run, Session: "s", Code: "secret of " + run}
			check := func(way string, res sandbox.Result, err error) {
				if err != nil || res.ID != req.ID || res.Stdout != run+"/s/"+req.Code {
					t.Errorf("%s %s by %s: %+v, %v", run, req.ID, way, res, err)
				}
			}
			all.Go(func() { res, err := stream.Execute(t.Context(), req); check("stream", res, err) })
			all.Go(func() {
				res, errs := plain.ExecuteBatch(t.Context(), []sandbox.Request{req})
				check("batch", res[0], errs[0])
			})
		}
	}
	all.Wait()
}
