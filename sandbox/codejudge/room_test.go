package codejudge_test

import (
	"bufio"
	"context"
	"encoding/json"
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

	"temper/sandbox"
	"temper/sandbox/budget"
	"temper/sandbox/codejudge"
	"temper/sandbox/sandboxtest"
)

// announce opens a connection that promises a large body and sends one byte of it.
func announce(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have been first
	fmt.Fprintf(conn, "POST /run/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 200<<20)
	return conn
}

// TestAnnouncedBodiesShutNobodyOut: bytes are charged when they arrive, and a body that
// does not arrive is given up.
func TestAnnouncedBodiesShutNobodyOut(t *testing.T) {
	server := httptest.NewServer(codejudge.NewHandler(&sandboxtest.Fake{}, codejudge.Config{Patience: 200 * time.Millisecond}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	var idle []net.Conn
	for range 16 {
		idle = append(idle, announce(t, address))
	}
	time.Sleep(20 * time.Millisecond)
	resp, err := http.Post(server.URL+"/run", "application/json", strings.NewReader(`{"type":"python","solution":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // its status is all that counts
	if resp.StatusCode != http.StatusOK {
		t.Errorf("beside connections that send nothing: %s, want 200", resp.Status)
	}
	for _, conn := range idle {
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("a body that does not arrive: %v, want 408", err)
		}
		_ = answer.Body.Close() // as above
		if answer.StatusCode != http.StatusRequestTimeout {
			t.Errorf("a body that does not arrive: %s, want 408", answer.Status)
		}
	}
}

// from makes a request of another machine.
func from(t *testing.T, h http.Handler, machine, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.RemoteAddr = machine + ":1234"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestOneLongBatchShutsNobodyOut: while 20,000 items of one machine are inside, it and
// others get answers to single calls.
func TestOneLongBatchShutsNobodyOut(t *testing.T) {
	const items = 20_000
	var ran atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	h := codejudge.NewHandler(executorFunc(func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
		if req.Code != "quick" && ran.Add(1) == 1000 {
			close(begun)
			<-release // item 1,000: the batch cannot end before the others have their answers
		}
		return sandbox.Result{Status: sandbox.StatusOK}, nil
	}), codejudge.Config{})
	body := `{"submissions":[` + strings.TrimSuffix(strings.Repeat(`{"type":"python","solution":"1"},`, items), ",") + `]}`
	var all sync.WaitGroup
	all.Go(func() {
		w := from(t, h, "10.0.0.1", "/judge/long-batch", body)
		if n := strings.Count(w.Body.String(), `"success":true`); w.Code != http.StatusOK || n != items {
			t.Errorf("the batch: %d with %d results", w.Code, n)
		}
	})
	<-begun
	for _, machine := range []string{"10.0.0.2", "10.0.0.1"} {
		if w := from(t, h, machine, "/run", `{"type":"python","solution":"quick"}`); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", machine, w.Code, w.Body)
		}
	}
	close(release)
	all.Wait()
}

// TestResultsAreWrittenAsTheyCome: a long batch does not hold what has been read.
func TestResultsAreWrittenAsTheyCome(t *testing.T) {
	const items, output = 4_000, 1000
	b := budget.New(24 << 20) // 3 MiB of answers for one caller, and 10 MB come
	text := strings.Repeat("\x01", output)
	server := httptest.NewServer(codejudge.NewHandler(executorFunc(func(context.Context, sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: text, Stderr: text}, nil
	}), codejudge.Config{Budget: b}))
	defer server.Close()
	body := `{"sub_id":"<a>","submissions":[` + strings.TrimSuffix(strings.Repeat(`{"type":"python","solution":"1"},`, items), ",") + `]}`
	resp, err := http.Post(server.URL+"/run/long-batch", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	most := int64(0)
	var all struct {
		SubID   string `json:"sub_id"`
		Results []struct {
			Success        bool
			Stdout, Stderr string
		}
	}
	if err := json.NewDecoder(watch{resp.Body, func() { most = max(most, b.Answers.Held()) }}).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all.Results) != items || all.SubID != "<a>" || all.Results[items-1].Stderr != text {
		t.Errorf("%d results of %q", len(all.Results), all.SubID)
	}
	// Those that ran when the room was full are above it.
	if bound := b.Answers.Half() + 1024*(2*output+512); most > bound {
		t.Errorf("%d bytes of answers were held, above %d", most, bound)
	}
}

// watch looks at something with each read.
type watch struct {
	io.Reader
	look func()
}

func (w watch) Read(p []byte) (int, error) {
	w.look()
	return w.Reader.Read(p)
}
