package httpapi_test

import (
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

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
)

// serve returns a client of a handler over exec.
func serve(t testing.TB, exec sandbox.Executor, cfg httpapi.Config) (*httpapi.Client, string) {
	t.Helper()
	server := httptest.NewServer(httpapi.NewHandler(exec, cfg))
	t.Cleanup(server.Close)
	return client(t, server.URL, cfg.Token), server.URL
}

func client(t testing.TB, address, token string) *httpapi.Client {
	t.Helper()
	c, err := httpapi.NewClient(address, httpapi.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestResultTravelsWhole(t *testing.T) {
	want := sandbox.Result{
		ID: "a", Status: sandbox.StatusError, Stdout: "o<\u2028>\x00", Stderr: "e", ExitCode: 3, Value: "v",
		Error:  &sandbox.PythonError{Type: "T", Message: "m", Line: 4, Source: "s"},
		Reason: "r", Usage: sandbox.Usage{Wall: 1, CPU: 2, PeakMemory: 3, Queue: 4},
	}
	req := sandbox.Request{
		ID: "a", Code: "c", Stdin: "i", Fixture: "f",
		Limits: sandbox.Limits{Wall: 1, CPU: 2, Memory: 3, Output: 4},
	}
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return want, nil }}
	c, _ := serve(t, fake, httpapi.Config{})
	got, err := c.Execute(t.Context(), req)
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

func TestErrorsKeepTheirMeaning(t *testing.T) {
	var give error
	c, _ := serve(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, give
	}}, httpapi.Config{})
	for _, want := range []error{sandbox.ErrOverloaded, sandbox.ErrUnavailable} {
		give = fmt.Errorf("%w: because", want)
		_, err := c.Execute(t.Context(), sandbox.Request{ID: want.Error()})
		if !errors.Is(err, want) || !strings.HasSuffix(err.Error(), "because") {
			t.Errorf("got %v, want %v", err, give)
		}
		_, errs := c.ExecuteBatch(t.Context(), []sandbox.Request{{ID: "b"}})
		if !errors.Is(errs[0], want) {
			t.Errorf("in a batch: got %v, want %v", errs[0], give)
		}
	}
}

func TestOverloadSaysWhenToRetry(t *testing.T) {
	var after time.Duration
	_, url := serve(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: after}
	}}, httpapi.Config{})
	for _, c := range []struct {
		after        time.Duration
		header, body string
	}{
		{0, "1", `"message":"sandbox overloaded: full"}`},
		{250 * time.Millisecond, "1", `"retry_after_ms":250}`},
		{1700 * time.Millisecond, "2", `"retry_after_ms":1700}`},
	} {
		after = c.after
		resp, err := http.Post(url+httpapi.PathExecute, "application/json", strings.NewReader(`{"id":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Retry-After"); resp.StatusCode != http.StatusTooManyRequests || got != c.header || !strings.Contains(string(body), c.body) {
			t.Errorf("got %s with Retry-After %q and %s, want 429 with %q and %s", resp.Status, got, body, c.header, c.body)
		}
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	fake := &sandboxtest.Fake{}
	_, url := serve(t, fake, httpapi.Config{})
	many := `{"calls":[` + strings.TrimSuffix(strings.Repeat("{},", httpapi.MaxBatch+1), ",") + `]}`
	for _, c := range []struct {
		name, path, body, deadline string
		status                     int
		want                       string
	}{
		{"no JSON", httpapi.PathExecute, "x", "", 400, "invalid character"},
		{"unknown field", httpapi.PathExecute, `{"cod":"1"}`, "", 400, "cod"},
		{"two values", httpapi.PathExecute, `{}{}`, "", 400, "after top-level value"},
		{"wrong type", httpapi.PathExecute, `{"code":1}`, "", 400, "code"},
		{"long body", httpapi.PathExecute, `{"code":"` + strings.Repeat("x", 9<<20) + `"}`, "", 413, "8388608 bytes"},
		{"long id", httpapi.PathExecute, `{"id":"` + strings.Repeat("x", 300) + `"}`, "", 400, "id of 300 bytes"},
		{"large batch", httpapi.PathBatch, many, "", 413, "257 calls"},
		{"bad deadline", httpapi.PathExecute, `{}`, "soon", 400, "soon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.deadline != "" {
				req.Header.Set("Temper-Deadline-Ms", c.deadline)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || !strings.Contains(string(body), c.want) {
				t.Errorf("got %s %s, want %d with %q", resp.Status, body, c.status, c.want)
			}
		})
	}
	if n := len(fake.Requests()); n != 0 {
		t.Errorf("%d bad requests were executed", n)
	}
}

func TestClientReportsABadRequestAsRefused(t *testing.T) {
	c, _ := serve(t, &sandboxtest.Fake{}, httpapi.Config{})
	id := strings.Repeat("x", 300)
	res, err := c.Execute(t.Context(), sandbox.Request{ID: id})
	if err != nil || res.Status != sandbox.StatusRefused || res.ID != id || !strings.Contains(res.Reason, "limit of 256") {
		t.Errorf("got %+v, %v, want refused with the reason", res, err)
	}
}

func TestBatchAnswersEachItem(t *testing.T) {
	c, _ := serve(t, &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		switch req.Code {
		case "busy":
			return sandbox.Result{}, sandbox.ErrOverloaded
		default:
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: req.Code}, nil
		}
	}}, httpapi.Config{})
	results, errs := c.ExecuteBatch(t.Context(), []sandbox.Request{
		{ID: "0", Code: "a"}, {ID: "1", Code: "busy"}, {ID: strings.Repeat("x", 300)}, {ID: "3", Code: "d"},
	})
	for i, want := range []string{"a", "", "", "d"} {
		if results[i].Stdout != want {
			t.Errorf("item %d: got %q, want %q", i, results[i].Stdout, want)
		}
	}
	if errs[0] != nil || !errors.Is(errs[1], sandbox.ErrOverloaded) || errs[2] != nil || errs[3] != nil {
		t.Errorf("got errors %v", errs)
	}
	if results[2].Status != sandbox.StatusRefused {
		t.Errorf("item 2: got %+v, want refused", results[2])
	}
}

func TestRepeatedIDGetsTheFirstAnswer(t *testing.T) {
	var runs atomic.Int32
	release := make(chan struct{})
	exec := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		<-release
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: fmt.Sprint(runs.Add(1))}, nil
	}}
	c, _ := serve(t, exec, httpapi.Config{})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			res, err := c.Execute(t.Context(), sandbox.Request{ID: "same"})
			if err != nil || res.Stdout != "1" {
				t.Errorf("got %+v, %v, want the first answer", res, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(release)
	calls.Wait()
	if res, err := c.Execute(t.Context(), sandbox.Request{ID: "same"}); err != nil || res.Stdout != "1" {
		t.Errorf("later: got %+v, %v, want the first answer", res, err)
	}
	if res, err := c.Execute(t.Context(), sandbox.Request{ID: "other"}); err != nil || res.Stdout != "2" {
		t.Errorf("another ID: got %+v, %v, want an answer of its own", res, err)
	}
}

func TestErrorIsNotRemembered(t *testing.T) {
	var runs atomic.Int32
	c, _ := serve(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		if runs.Add(1) == 1 {
			return sandbox.Result{}, sandbox.ErrOverloaded
		}
		return sandbox.Result{Status: sandbox.StatusOK}, nil
	}}, httpapi.Config{})
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "a"}); !errors.Is(err, sandbox.ErrOverloaded) {
		t.Fatalf("got %v, want overloaded", err)
	}
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Errorf("retry: %v", err)
	}
}

func TestFailureOfTheSandboxIsNotRemembered(t *testing.T) {
	var calls atomic.Int32
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		if calls.Add(1) == 1 {
			return sandbox.Result{Status: sandbox.StatusInternal}, nil
		}
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2"}, nil
	}}
	c, _ := serve(t, fake, httpapi.Config{})
	for i, want := range []sandbox.Status{sandbox.StatusInternal, sandbox.StatusOK, sandbox.StatusOK} {
		got, err := c.Execute(t.Context(), sandbox.Request{ID: "again", Code: "print(1+1)"})
		if err != nil || got.Status != want {
			t.Errorf("attempt %d: status %q, error %v, want %q", i+1, got.Status, err, want)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the program ran %d times, want 2: an answer stays", n)
	}
}

func TestWindowEnds(t *testing.T) {
	var runs atomic.Int32
	c, _ := serve(t, &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, ExitCode: int(runs.Add(1))}, nil
	}}, httpapi.Config{Window: time.Millisecond})
	for want := 1; want <= 2; want++ {
		res, err := c.Execute(t.Context(), sandbox.Request{ID: "a"})
		if err != nil || res.ExitCode != want {
			t.Errorf("got %+v, %v, want run %d", res, err, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestDeadlineAndCancelReachTheExecutor(t *testing.T) {
	g := newGate()
	c, url := serve(t, g, httpapi.Config{})
	ctx := newDue(t)
	failed := make(chan error, 1)
	call := func(ctx context.Context, id string) {
		_, err := c.Execute(ctx, sandbox.Request{ID: id})
		failed <- err
	}
	go call(ctx, "a")
	receive(t, g.started)
	checkDeadline(t, receive(t, g.deadlines))
	close(ctx.over)
	if err := receive(t, failed); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
	}
	receive(t, g.ended)
	// The header alone must be enough: here the client waits for ever.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+httpapi.PathExecute, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Temper-Deadline-Ms", "20")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if receive(t, g.ended); resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("got %s, want 504", resp.Status)
	}
	receive(t, g.started)
	gone, leave := context.WithCancel(t.Context())
	go call(gone, "b")
	receive(t, g.started)
	leave()
	if err := receive(t, failed); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	receive(t, g.ended) // the executor learns that its caller left
}

func TestToken(t *testing.T) {
	fake := &sandboxtest.Fake{}
	right, url := serve(t, fake, httpapi.Config{Token: "secret"})
	if _, err := right.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	for _, token := range []string{"", "wrong"} {
		_, err := client(t, url, token).Execute(t.Context(), sandbox.Request{ID: "b"})
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "token") {
			t.Errorf("token %q: got %v, want unavailable that names the token", token, err)
		}
	}
	if n := len(fake.Requests()); n != 1 {
		t.Errorf("%d calls were executed, want 1", n)
	}
	if err := client(t, url, "").Health(t.Context()); err != nil {
		t.Errorf("health needs no token: %v", err)
	}
}

func TestBrokenConnectionIsRetriedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := httpapi.NewHandler(&sandboxtest.Fake{}, httpapi.Config{})
	var seen, broken atomic.Int32
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if broken.Add(-1) >= 0 {
			panic(http.ErrAbortHandler) // drops the connection without an answer
		}
		handler.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }() // ends with Close below
	defer server.Close()
	c := client(t, listener.Addr().String(), "")
	broken.Store(1)
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "a"}); err != nil {
		t.Errorf("after one broken connection: %v", err)
	}
	seen.Store(0)
	broken.Store(100)
	if _, err := c.Execute(t.Context(), sandbox.Request{ID: "b"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, sandbox.ErrUnavailable)
	}
	if n := seen.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

func TestStatusAnswersWhatTheNodeSays(t *testing.T) {
	c, _ := serve(t, &sandboxtest.Fake{}, httpapi.Config{Status: func() any { return map[string]int{"slots": 7} }})
	var got map[string]int
	if err := c.Status(t.Context(), &got); err != nil || got["slots"] != 7 {
		t.Errorf("got %v, %v, want slots 7", got, err)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, address := range []string{"", "unix:", "host", "1.2.3.4"} {
		if _, err := httpapi.NewClient(address, httpapi.Options{}); err == nil {
			t.Errorf("address %q was accepted", address)
		}
	}
}

// FuzzHandler checks that any body gets an answer in JSON, and the same one when it
// is sent again. A handler remembers ids, so each input has its own.
func FuzzHandler(f *testing.F) {
	f.Add(`{"id":"a","code":"print(1)","limits":{"wall_ns":5}}`)
	f.Add(`{"limits":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		handler := httpapi.NewHandler(&sandboxtest.Fake{}, httpapi.Config{})
		post := func() (int, string) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, httpapi.PathExecute, strings.NewReader(body)))
			return w.Code, w.Body.String()
		}
		code, text := post()
		if !json.Valid([]byte(text)) || code != 200 && code != 400 {
			t.Errorf("body %q: got %d %q", body, code, text)
		}
		if again, repeated := post(); again != code || repeated != text {
			t.Errorf("body %q: got %d %q, then %d %q", body, code, text, again, repeated)
		}
	})
}
