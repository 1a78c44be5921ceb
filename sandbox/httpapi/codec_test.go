package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
)

// FuzzAppend holds the appenders to encoding/json: what both write means the same.
func FuzzAppend(f *testing.F) {
	f.Add("a", "print(1)\n", "", int64(0), int64(-1), true)
	f.Add("an empty history", "is one", "", int64(4), int64(0), true)
	f.Add("\x00\xff<&\u2028", "\\\"\t", "s", int64(1), int64(1<<62), false)
	f.Fuzz(func(t *testing.T, a, b, c string, m, n int64, flag bool) {
		req := sandbox.Request{
			ID: a, Code: b, Stdin: c, Fixture: a + c, Profile: sandbox.Profile(c), Run: c, Session: b,
			Limits: sandbox.Limits{Wall: time.Duration(m), CPU: time.Duration(n), Memory: n, Output: m},
		}
		if flag {
			req.History = []string{a, b, c}[:m&3]
			req.HistoryStdin = []string{c, a, b}[:n&3]
			req.HistoryTimes = []time.Duration{time.Duration(m), 0, time.Duration(n)}[:m&3]
			cells := int(int32(n))
			req.SessionCells, req.BranchOf = &cells, a
		}
		same(t, appendRequest(nil, &req), req)
		var back, want sandbox.Request
		if err := unmarshal(appendRequest(nil, &req), &back); err != nil {
			t.Fatalf("what a client writes is refused: %v", err)
		}
		if text, err := json.Marshal(req); err != nil || json.Unmarshal(text, &want) != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(back, want); diff != "" {
			t.Errorf("read back (-got +want):\n%s", diff)
		}
		res := sandbox.Result{
			ID: a, Status: sandbox.Status(b), Stdout: c, Stderr: b, ExitCode: int(int32(m)), Value: c, Reason: a, SessionEnded: flag, SessionNew: flag,
			Usage: sandbox.Usage{Wall: time.Duration(m), CPU: time.Duration(n), PeakMemory: n, Queue: time.Duration(m)},
		}
		if flag {
			res.Error = &sandbox.PythonError{Type: a, Message: b, Line: int(int32(n)), Source: c}
		}
		enc := &encoder{}
		enc.result(&res)
		same(t, enc.buf, res)
		same(t, appendFailure(nil, &Failure{Code: Code(a), Message: b, RetryAfterMS: m}), Failure{Code(a), b, m})
		load := Load{Slots: int(int32(m)), Busy: int(int32(n)), Waiting: 3, Queue: 4, Draining: flag}
		same(t, appendLoad(nil, &load), struct {
			Load *Load `json:"load"`
		}{&load})
	})
}

// same fails unless got is JSON of one line that means what encoding/json writes
// for v, in the same order of members.
func same[T any](t *testing.T, got []byte, v T) {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	// encoding/json escapes what may stand for itself.
	want := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\ufffd`, "\ufffd").Replace(strings.TrimSuffix(text.String(), "\n"))
	if strings.Contains(text.String(), `\\u`) {
		var a, b any // an escaped backslash before it: the text alone cannot tell
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text.Bytes(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("differs (-got +want):\n%s", diff)
		}
		return
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("differs (-got +want):\n%s", diff)
	}
}

func TestIDOfWhatIsNotAcceptable(t *testing.T) {
	for line, want := range map[string]string{
		`{"call":{"id":"a","code":1}}`:                        "a",
		`{"deadline_ms":5,"call":{"code":"x","id":"b"},"x":1`: "b",
		`{"call":{"code":"unfinished`:                         "",
		`{"call":{"id":7}}`:                                   "",
		`{"call":[{"id":"no"}]}`:                              "",
		`{"id":"item"}`:                                       "item",
		`{"call":{"id":"` + strings.Repeat("x", maxID+1):      "",
		``:     "",
		`null`: "",
	} {
		if got := idOf([]byte(line)); got != want {
			t.Errorf("%s: got id %q, want %q", line, got, want)
		}
	}
}

func TestWindowForgetsByCountAndBytes(t *testing.T) {
	fill := func(w *window, id, stdout string) {
		req := sandbox.Request{ID: id}
		_, err := w.do(t.Context(), &req, func() (*sandbox.Result, error) {
			return &sandbox.Result{Status: sandbox.StatusOK, Stdout: stdout}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := newWindow(time.Hour, 256<<20)
	w.count = 2
	for _, id := range []string{"a", "b", "c"} {
		fill(w, id, "")
	}
	if len(w.entries) != 2 || w.entries[callName{id: "a"}] != nil {
		t.Errorf("got %d entries, want the 2 newest", len(w.entries))
	}
	w = newWindow(time.Hour, 256<<20)
	w.bytes = 1 << 20
	fill(w, "small", "")
	fill(w, "great", strings.Repeat("x", 1<<20))
	if len(w.entries) != 0 || w.held != 0 {
		t.Errorf("got %d entries of %d bytes, want none", len(w.entries), w.held)
	}
}

// TestWindowForgetsWithoutCalls: what was answered goes in time, also when nobody calls.
func TestWindowForgetsWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(5*time.Minute, 256<<20)
		kept := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.entries)
		}
		for i := range 10 {
			req := sandbox.Request{ID: fmt.Sprint(i)}
			if _, err := w.do(t.Context(), &req, func() (*sandbox.Result, error) { return &sandbox.Result{Status: sandbox.StatusOK}, nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute / 2)
		}
		if n := kept(); n != 10 {
			t.Errorf("%d answers after 5 minutes, want all 10", n)
		}
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		if n := kept(); n != 0 || w.held != 0 {
			t.Errorf("%d answers of %d bytes are kept without calls, want none", n, w.held)
		}
	})
}

func TestLines(t *testing.T) {
	long := strings.Repeat("y", 100<<10)
	in := &lines{r: &oneByOne{strings.NewReader("a\n\n" + long + "\nb\r\nlast")}, limit: 50 << 10}
	type line struct {
		text string
		long bool
	}
	var got []line
	for {
		text, tooLong, err := in.next()
		if err != nil {
			break
		}
		if len(text) > 10 {
			text = text[:10]
		}
		got = append(got, line{string(text), tooLong})
	}
	want := []line{{"a", false}, {"", false}, {"yyyyyyyyyy", true}, {"b\r", false}, {"last", false}}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("lines (-got +want):\n%s", diff)
	}
}

// oneByOne reads at most three bytes at a time.
type oneByOne struct{ r *strings.Reader }

func (o *oneByOne) Read(p []byte) (int, error) { return o.r.Read(p[:min(3, len(p))]) }
