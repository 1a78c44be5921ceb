package codejudge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/codejudge"
	"temper/sandbox/sandboxtest"
)

// executorFunc is an Executor of one function.
type executorFunc func(ctx context.Context, req sandbox.Request) (sandbox.Result, error)

// Execute implements sandbox.Executor.
func (f executorFunc) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return f(ctx, req)
}

// submissions is a batch of n programs that print their number.
func submissions(n int) string {
	var b strings.Builder
	b.WriteString(`{"sub_id":"b","submissions":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"python","solution":"%d","sub_id":"s%d"}`, i, i)
	}
	return b.String() + "]}"
}

// items decodes the answer of a batch.
func items(t *testing.T, text string) (results []struct {
	SubID   string `json:"sub_id"`
	Success bool
	Stdout  *string
	Reason  string
	Cost    float64
}) {
	t.Helper()
	answer := struct{ Results any }{&results}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return results
}

// narrow admits slots calls at once and refuses the others; each takes hold.
type narrow struct {
	slots   int64
	hold    time.Duration
	busy    atomic.Int64
	refused atomic.Int64
	mu      sync.Mutex
	ran     map[string]int
	ids     map[string]bool
}

// Execute implements sandbox.Executor.
func (n *narrow) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	defer n.busy.Add(-1)
	if n.busy.Add(1) > n.slots {
		n.refused.Add(1)
		return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: 200 * time.Millisecond}
	}
	select {
	case <-time.After(n.hold):
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ran == nil {
		n.ran, n.ids = map[string]int{}, map[string]bool{}
	}
	n.ran[req.Code]++
	n.ids[req.ID] = true
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Code, Usage: sandbox.Usage{Wall: n.hold}}, nil
}

func TestOverloadLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &narrow{slots: 40, hold: 100 * time.Millisecond}
		h := codejudge.NewHandler(exec, codejudge.Config{})
		const n = 3000
		start := time.Now()
		code, text := post(t, h, "/run/long-batch", submissions(n))
		took := time.Since(start)
		if code != http.StatusOK {
			t.Fatalf("code %d: %s", code, text)
		}
		for i, r := range items(t, text) {
			if want := fmt.Sprint(i); r.SubID != "s"+want || !r.Success || *r.Stdout != want {
				t.Fatalf("item %d: %+v", i, r)
			}
		}
		for code, times := range exec.ran {
			if times != 1 {
				t.Errorf("program %s ran %d times", code, times)
			}
		}
		if len(exec.ran) != n || len(exec.ids) != n {
			t.Errorf("%d programs under %d names, want %d", len(exec.ran), len(exec.ids), n)
		}
		// 3000 / 40 rounds of 100 ms are 7.5 s; the line may waste a tenth.
		if took > 8250*time.Millisecond {
			t.Errorf("took %v with %d refusals", took, exec.refused.Load())
		}
		if refused := exec.refused.Load(); refused > n/4 {
			t.Errorf("%d refusals for %d calls", refused, n)
		}
	})
}

func TestQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &narrow{slots: 2, hold: 10 * time.Second}
		h := codejudge.NewHandler(exec, codejudge.Config{})
		code, text := post(t, h, "/judge/batch", submissions(5))
		if code != http.StatusOK {
			t.Fatalf("code %d: %s", code, text)
		}
		served, late := 0, 0
		for _, r := range items(t, text) {
			switch {
			case r.Success && r.Reason == "":
				served++
			case r.Reason == "queue_timeout" && r.Cost == 19:
				late++
			default:
				t.Errorf("item %+v", r)
			}
		}
		if served != 4 || late != 1 { // two began at once, two after 10 s
			t.Errorf("%d served, %d late; want 4 and 1", served, late)
		}
		full := executorFunc(func(context.Context, sandbox.Request) (sandbox.Result, error) {
			return sandbox.Result{}, &sandbox.Overloaded{Detail: "full"}
		})
		start := time.Now()
		code, text = post(t, codejudge.NewHandler(full, codejudge.Config{}), "/run", `{"type":"python","solution":"1","sub_id":"a"}`)
		want := `{"sub_id":"a","success":false,"run_success":false,"cost":19.0,"stdout":null,"stderr":null,"reason":"queue_timeout"}`
		if code != http.StatusOK || text != want {
			t.Errorf("code %d: %s, want %s", code, text, want)
		}
		if took := time.Since(start); took != 19*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestFirstComeFirstServed submits single calls one after the other to an
// executor that is busy.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		exec := &narrow{slots: 1, hold: 10 * time.Millisecond}
		noting := executorFunc(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			res, err := exec.Execute(ctx, req)
			if err == nil {
				mu.Lock()
				order = append(order, req.Code)
				mu.Unlock()
			}
			return res, err
		})
		h := codejudge.NewHandler(noting, codejudge.Config{})
		// The line learns that there is one slot.
		post(t, h, "/run/batch", submissions(50))
		order = nil
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				post(t, h, "/run", fmt.Sprintf(`{"type":"python","solution":"%c"}`, 'a'+i))
			})
			synctest.Wait()
		}
		clients.Wait()
		for i, code := range order {
			// Where the line tries to grow two neighbours race for the slot.
			if at := int(code[0] - 'a'); at < i-1 || at > i+1 {
				t.Errorf("served in order %s", strings.Join(order, ""))
				break
			}
		}
		if len(order) != 20 {
			t.Errorf("%d served", len(order))
		}
	})
}

func TestUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		lost := func(good func(sandbox.Request) bool) http.Handler {
			return codejudge.NewHandler(executorFunc(func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
				calls.Add(1)
				if good(req) {
					return sandbox.Result{Status: sandbox.StatusOK}, nil
				}
				return sandbox.Result{}, fmt.Errorf("%w: no node", sandbox.ErrUnavailable)
			}), codejudge.Config{})
		}
		never := lost(func(sandbox.Request) bool { return false })
		for _, c := range [][2]string{{"/run", `{"type":"python","solution":"1"}`}, {"/judge/long-batch", submissions(3)}} {
			w := httptest.NewRecorder()
			never.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, c[0], strings.NewReader(c[1])))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `{"detail":"no executor`) {
				t.Errorf("%s: %d %v %s", c[0], w.Code, w.Header(), w.Body)
			}
		}
		code, text := post(t, lost(func(req sandbox.Request) bool { return req.Code != "1" }), "/run/long-batch", submissions(3))
		if got := items(t, text); code != 200 || !got[0].Success || got[1].Reason != "queue_timeout" || !got[2].Success {
			t.Errorf("code %d: %s", code, text)
		}
		calls.Store(0)
		code, text = post(t, lost(func(sandbox.Request) bool { return calls.Load() == 4 }), "/run", `{"type":"python","solution":"1"}`)
		if code != 200 || !strings.Contains(text, `"success":true`) || calls.Load() != 4 {
			t.Errorf("after %d attempts: %d %s", calls.Load(), code, text)
		}
	})
}

func TestCallerThatHangsUpFreesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		h := codejudge.NewHandler(executorFunc(func(ctx context.Context, _ sandbox.Request) (sandbox.Result, error) {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return sandbox.Result{}, ctx.Err()
		}), codejudge.Config{})
		ctx, hangUp := context.WithCancel(t.Context())
		var client sync.WaitGroup
		client.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/run/long-batch", strings.NewReader(submissions(300)))
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		synctest.Wait()
		if got := running.Load(); got != 256 {
			t.Errorf("%d calls run, want the 256 that the line begins with", got)
		}
		if _, text := get(t, h, "/status"); text != `{"queue":44,"num_workers":0}` {
			t.Errorf("status %s", text)
		}
		hangUp()
		client.Wait()
		if _, text := get(t, h, "/status"); running.Load() != 0 || text != `{"queue":0,"num_workers":0}` {
			t.Errorf("%d calls still run, status %s", running.Load(), text)
		}
	})
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestRoomIsBounded(t *testing.T) {
	release := make(chan struct{})
	h := codejudge.NewHandler(executorFunc(func(ctx context.Context, _ sandbox.Request) (sandbox.Result, error) {
		select {
		case <-release:
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		case <-ctx.Done():
			return sandbox.Result{}, ctx.Err()
		}
	}), codejudge.Config{MaxCalls: 10, MaxBody: 4096})
	if code, text := post(t, h, "/run/batch", submissions(11)); code != 422 || !strings.Contains(text, "too_long") {
		t.Errorf("too many items: %d %s", code, text)
	}
	for _, path := range []string{"/run", "/run/batch"} {
		code, text := post(t, h, path, `{"type":"python","solution":"`+strings.Repeat("x", 5000)+`"}`)
		if code != http.StatusRequestEntityTooLarge || text != `{"detail":"body is above the limit of 4096 bytes"}` {
			t.Errorf("%s too large: %d %s", path, code, text)
		}
	}
	var first sync.WaitGroup
	first.Go(func() {
		code, text := post(t, h, "/run/batch", submissions(8))
		for code == http.StatusTooManyRequests { // the other batch came first
			code, text = post(t, h, "/run/batch", submissions(8))
		}
		if code != 200 || len(items(t, text)) != 8 {
			t.Errorf("first batch: %d %s", code, text)
		}
	})
	var w *httptest.ResponseRecorder
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		w = httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/judge/batch", strings.NewReader(submissions(3))))
		cancel()
		if w.Code == http.StatusTooManyRequests {
			break
		}
	}
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("second batch: %d %v %s", w.Code, w.Header(), w.Body)
	}
	close(release)
	first.Wait()
	if code, text := post(t, h, "/judge/batch", submissions(10)); code != 200 {
		t.Errorf("after the first batch: %d %s", code, text)
	}
}

func TestToken(t *testing.T) {
	h := codejudge.NewHandler(&sandboxtest.Fake{}, codejudge.Config{Token: "secret"})
	for _, c := range []struct {
		auth string
		want int
	}{{"", 401}, {"Bearer wrong", 401}, {"secret", 401}, {"Bearer secret", 200}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/run", strings.NewReader(`{"type":"python","solution":"1"}`))
		r.Header.Set("Authorization", c.auth)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%q: %d %s", c.auth, w.Code, w.Body)
		}
	}
	if code, text := get(t, h, "/ping"); code != 200 || text != `"pong"` {
		t.Errorf("ping: %d %s", code, text)
	}
	if code, _ := get(t, h, "/status"); code != 401 {
		t.Errorf("status: %d", code)
	}
}

func TestRoutes(t *testing.T) {
	h := codejudge.NewHandler(&sandboxtest.Fake{}, codejudge.Config{Load: func() codejudge.Load { return codejudge.Load{Queue: 2, Workers: 4} }})
	if code, text := get(t, h, "/status"); code != 200 || text != `{"queue":2,"num_workers":4}` {
		t.Errorf("status: %d %s", code, text)
	}
	if code, text := get(t, h, "/run"); code != 405 || text != `{"detail":"Method Not Allowed"}` {
		t.Errorf("GET /run: %d %s", code, text)
	}
	if code, text := get(t, h, "/v1/execute"); code != 404 || text != `{"detail":"Not Found"}` {
		t.Errorf("other path: %d %s", code, text)
	}
	// Beside another mux every path has to reach this handler.
	mux := http.NewServeMux()
	for _, path := range codejudge.Paths() {
		mux.Handle(path, h)
	}
	for _, path := range codejudge.Paths() {
		if code, _ := post(t, mux, path, submissions(1)); code == 404 {
			t.Errorf("%s is not found", path)
		}
	}
}

func TestRequestsOfTheSandbox(t *testing.T) {
	fake := &sandboxtest.Fake{}
	h := codejudge.NewHandler(fake, codejudge.Config{Execution: 4 * time.Second})
	body := `{"submissions":[{"type":"python","solution":"a","input":"in","sub_id":"x"},{"type":"python","solution":"b","expected_output":"` + strings.Repeat("y", 100_000) + `","sub_id":"x"}]}`
	if code, text := post(t, h, "/judge/batch", body); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	ids := map[string]bool{}
	for _, req := range fake.Requests() {
		ids[req.ID] = true
		if req.Run == "" || req.Limits.Wall != 4*time.Second || req.Limits.CPU != 4*time.Second {
			t.Errorf("request %+v", req)
		}
		switch req.Code {
		case "a":
			if req.Stdin != "in" || req.Limits.Output != 0 {
				t.Errorf("request %+v", req)
			}
		case "b":
			if req.Limits.Output < 100_000 {
				t.Errorf("output limit %d would cut what is compared", req.Limits.Output)
			}
		}
	}
	if len(ids) != 2 || ids["x"] {
		t.Errorf("calls named %v: a client's names repeat and must not name calls", ids)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"type":"python","solution":"print(1)","input":null}`, submissions(3), `{"submissions":[null,{"type":"cpp"},3]}`,
		`{"submissions":[{"type":"python","solution":"\ud800"}]}`, `[[[[`, "{\"sub_id\":\"\xff\"}", `{"options":{"a":{"b":[]}}}`,
	} {
		f.Add(seed)
	}
	h := codejudge.NewHandler(&sandboxtest.Fake{Func: programs}, codejudge.Config{})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/run", "/judge/long-batch"} {
			code, text := post(t, h, path, body)
			if code != 200 && code != 400 && code != 422 {
				t.Fatalf("%s: code %d for %q", path, code, body)
			}
			var answer struct {
				Results []json.RawMessage
				Detail  any
				Reason  *string
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatalf("%s: %v in %q", path, err, text)
			}
			if code == 200 && answer.Results == nil && answer.Reason == nil || code != 200 && answer.Detail == nil {
				t.Fatalf("%s: %d %s for %q", path, code, text, body)
			}
			var sent struct{ Submissions []json.RawMessage }
			if path != "/run" && code == 200 && json.Unmarshal([]byte(body), &sent) == nil && len(sent.Submissions) != len(answer.Results) {
				t.Fatalf("%d results for %d submissions in %q", len(answer.Results), len(sent.Submissions), body)
			}
		}
	})
}

// TestStarvedProgramsAreAnswered: a program whose neighbours keep it from running may
// take as long as the sandbox gives it, which is longer than a call waits in line.
func TestStarvedProgramsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := executorFunc(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
			timer := time.NewTimer(req.Limits.Wall + sandbox.Slack(req.Limits.Wall))
			defer timer.Stop()
			select {
			case <-timer.C:
				return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: "1\n"}, nil
			case <-ctx.Done():
				return sandbox.Result{}, ctx.Err()
			}
		})
		h := codejudge.NewHandler(slow, codejudge.Config{})
		code, text := post(t, h, "/run", `{"type":"python","solution":"1"}`)
		if code != http.StatusOK || !strings.Contains(text, `"success":true`) {
			t.Errorf("code %d: %s, want the answer of the program", code, text)
		}
		code, text = post(t, h, "/run/batch", submissions(1))
		if code != http.StatusOK || !strings.Contains(text, `"success":true`) {
			t.Errorf("batch: code %d: %s, want the answer of the program", code, text)
		}
	})
}
