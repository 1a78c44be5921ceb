package ui_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/ui"
)

// countRecords reads TFRecord framing.
func countRecords(t *testing.T, in *bufio.Reader) int {
	t.Helper()
	for n := 0; ; n++ {
		var length uint64
		if err := binary.Read(in, binary.LittleEndian, &length); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Discard(4 + int(length) + 4); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignNamesAndPages: a page whose name was made to resolve to this machine, and a
// page of another site, get nothing.
func TestForeignNamesAndPages(t *testing.T) {
	s := newSite(t, playedRun(t).Store, func(c *ui.Config) { c.Hosts = []string{"board.example.org"} })
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for host, want := range map[string]int{
		"evil.example.com": 403, "evil.example.com" + port: 403, "127.0.0.1.evil.example.com": 403, "localhost" + port: 200, "127.0.0.1" + port: 200, "[::1]" + port: 200,
		"board.example.org": 200, "BOARD.example.org.": 200, "10.1.2.3" + port: 403,
	} {
		if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs", "", "Host", host); resp.StatusCode != want {
			t.Errorf("host %s: %s %.100s, want %d", host, resp.Status, body, want)
		}
	}
	for _, origin := range []string{"http://evil.example.com", "null", "http://127.0.0.1:1"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			resp, _ := s.ask(t, method, "/api/v1/runs/demo/commands/pause", `{"command":{"reason":"x"}}`, "Origin", origin, "Authorization", "Bearer "+token)
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s from %s: %s", method, origin, resp.Status)
			}
		}
	}
	if resp, _ := s.ask(t, http.MethodPost, "/api/v1/runs/demo/commands/pause", `{}`, "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer "+token); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a request across sites: %s", resp.Status)
	}
	if len(s.steer.sent) > 0 {
		t.Errorf("sent %q", s.steer.sent)
	}
	resp, _ := s.ask(t, http.MethodGet, "/", "")
	for header, want := range map[string]string{"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if !strings.HasPrefix(resp.Header.Get(header), want) {
			t.Errorf("%s is %q", header, resp.Header.Get(header))
		}
	}
	if h := resp.Header.Get("Access-Control-Allow-Origin"); h != "" {
		t.Errorf("answers are shared with %s", h)
	}
}

// TestToken: commands need the token, reading only where it was asked for, and guessing
// is slow.
func TestToken(t *testing.T) {
	h := playedRun(t)
	now := time.Unix(1, 0)
	s := newSite(t, h.Store, func(c *ui.Config) { c.Now = func() time.Time { return now } })
	pause := func(header ...string) int {
		t.Helper()
		resp, _ := s.ask(t, http.MethodPost, "/api/v1/runs/half/commands/pause", `{"command":{"reason":"look"}}`, header...)
		return resp.StatusCode
	}
	if got := pause(); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	for i := range 7 {
		want := http.StatusUnauthorized
		if i >= 4 {
			want = http.StatusTooManyRequests
		}
		if got := pause("Authorization", "Bearer wrong"); got != want {
			t.Errorf("wrong token %d: %d, want %d", i, got, want)
		}
	}
	if got := pause("Authorization", "Bearer "+token); got != http.StatusOK || len(s.steer.sent) != 1 {
		t.Errorf("with the token: %d, sent %q", got, s.steer.sent)
	}
	closed := newSite(t, h.Store, func(c *ui.Config) { c.ReadNeedsToken = true })
	for _, path := range []string{"/api/v1/runs", "/api/v1/events?run=demo", "/api/v1/runs/demo/export/csv"} {
		if resp, _ := closed.ask(t, http.MethodGet, path, ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %s", path, resp.Status)
		}
	}
	if resp, _ := closed.ask(t, http.MethodGet, "/api/v1/runs", "", "Authorization", "Bearer "+token); resp.StatusCode != http.StatusOK {
		t.Errorf("reading with the token: %s", resp.Status)
	}
	path := filepath.Join(t.TempDir(), "home", "ui.token")
	first, err := ui.Token(path)
	second, err2 := ui.Token(path)
	info, err3 := os.Stat(path)
	if errors.Join(err, err2, err3) != nil || first != second || len(first) != 64 || info.Mode().Perm() != 0o600 {
		t.Errorf("token %q, then %q, mode %v (%v %v %v)", first, second, info.Mode(), err, err2, err3)
	}
}

// TestCommands: a command needs a reason, the end of a run its name, and a preview says
// what an amendment changes.
func TestCommands(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	give := func(path, body string) (int, string) {
		t.Helper()
		resp, text := s.ask(t, http.MethodPost, "/api/v1/runs/half/"+path, body, "Authorization", "Bearer "+token)
		return resp.StatusCode, text
	}
	for _, wrong := range [][3]string{
		{"commands/pause", `{"command":{}}`, "reason is empty"}, {"commands/stop", `{"command":{"reason":"x"}}`, "repeat its id"}, {"commands/stop", `{"command":{"reason":"x"},"confirm":"demo"}`, "repeat its id"},
		{"commands/rm", `{}`, "no command"}, {"commands/pause", `{"x":1}`, "no JSON object"}, {"commands/pause", `[`, "no JSON object"}, {"preview/pause", `{}`, "changes no key"},
	} {
		if code, text := give(wrong[0], wrong[1]); code < 400 || code > 404 || !strings.Contains(text, wrong[2]) {
			t.Errorf("%s %s: %d %s", wrong[0], wrong[1], code, text)
		}
	}
	if len(s.steer.sent) > 0 {
		t.Fatalf("sent %q", s.steer.sent)
	}
	for _, good := range [][2]string{
		{"commands/stop", `{"command":{"reason":"enough","by":"me"},"confirm":"half"}`}, {"commands/amend", `{"command":{"reason":"slower","set":{"rl.optimizer.lr":1e-5},"from_step":4}}`},
	} {
		if code, text := give(good[0], good[1]); code != http.StatusOK || !strings.Contains(text, "it will") {
			t.Errorf("%s: %d %s", good[1], code, text)
		}
	}
	if got := s.steer.args[0]; got.By != "ui/me" || got.Reason != "enough" {
		t.Errorf("stop: %+v", got)
	}
	if got := s.steer.args[1]; got.By != "ui/browser" || got.Set["rl.optimizer.lr"] != "1e-5" || got.FromStep != 4 {
		t.Errorf("amend: %+v", got)
	}
	preview := func(set string) (p ui.Preview) {
		t.Helper()
		code, text := give("preview/amend", `{"command":{"set":`+set+`}}`)
		if err := json.Unmarshal([]byte(text), &p); code != http.StatusOK || err != nil {
			t.Fatalf("%d %s", code, text)
		}
		return p
	}
	if p := preview(`{"rl.optimizer.lr":"0.5"}`); p.Step != 3 || len(p.Changes) != 1 || p.Changes[0].To != "0.5" || len(p.Warnings) != 1 || len(p.Problems) > 0 {
		t.Errorf("preview: %+v", p)
	}
	if p := preview(`{"model.hidden_size":"16","rl.nothing":"1"}`); len(p.Problems) != 2 || len(p.Changes) > 0 {
		t.Errorf("preview of what is refused: %+v", p)
	}
	alone := newSite(t, h.Store, func(c *ui.Config) { c.Steer = nil })
	if resp, body := alone.ask(t, http.MethodPost, "/api/v1/runs/half/commands/pause", `{"command":{"reason":"x"}}`, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "reads alone") {
		t.Errorf("without Temporal: %s %s", resp.Status, body)
	}
}

// TestHostileTexts: what a model wrote comes as JSON text, whole or cut with a word about it.
func TestHostileTexts(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	g := firstGroup(t, h, 1)
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Step(1).Group(g.ProblemID))
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for line := range strings.Lines(string(data)) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		v["answer"] = "</script><script>alert(1)</script>\x00\x1b[31m\u202e"
		v["turns"] = []any{map[string]any{"start": v["prompt_tokens"], "end": 1e9, "finish": "stop", "calls": []any{map[string]any{"id": "a", "name": "<img src=x onerror=alert(1)>", "arguments": strings.Repeat("A", 10<<20), "status": "ok", "response": "<b>"}}}}
		lines = append(lines, v)
	}
	var out []byte
	for _, v := range lines {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, line...), '\n')
	}
	if _, err := blob.PutBytes(t.Context(), h.Store, h.Layout.Step(1).Group(g.ProblemID), out, blob.Always); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, h.Store, nil)
	resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/steps/1/"+g.ProblemID+"/0", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || strings.Contains(body, "<script>") || strings.Contains(body, "<img") || strings.ContainsAny(body, "\x00\x1b") {
		t.Errorf("%s %s: raw characters", resp.Status, resp.Header.Get("Content-Type"))
	}
	if len(body) > 1<<20 || !strings.Contains(body, "left out here") {
		t.Errorf("%d bytes, and nothing says that some are left out", len(body))
	}
}

// TestStream: a stream tells of steps, and one that comes back with its cursor misses
// none.
func TestStream(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	s := newSite(t, h.Store, nil)
	first := s.open(t, "/api/v1/events?run=demo", "")
	if e := first.next(t); e.kind != "reset" {
		t.Fatalf("first event: %+v", e)
	}
	cursor := first.last
	first.close()
	h.Continue(t, 3, 4)
	again := s.open(t, "/api/v1/events?run=demo", cursor)
	var steps []string
	for len(steps) < 2 {
		if e := again.next(t); e.kind == "step" {
			var got struct {
				Run  string `json:"run"`
				Step struct {
					Step int `json:"step"`
				} `json:"step"`
			}
			if err := json.Unmarshal([]byte(e.data), &got); err != nil {
				t.Fatal(err)
			}
			steps = append(steps, fmt.Sprintf("%s %d", got.Run, got.Step.Step))
		}
	}
	if strings.Join(steps, ",") != "demo 3,demo 4" {
		t.Errorf("came back and saw %q", steps)
	}
	for path, want := range map[string]int{"/api/v1/events": 400, "/api/v1/events?run=none": 404, "/api/v1/events?run=..": 404, "/api/v1/events?run=demo&after=x": 400} {
		if resp, body := s.ask(t, http.MethodGet, path, ""); resp.StatusCode != want {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
}

// TestStreamMissesNoLateEntry: a page that comes back gets an entry that is older than the last
// one that it saw, and nothing twice; from a server that cannot tell what the page has seen, it
// learns that it must read all again.
func TestStreamMissesNoLateEntry(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	log := func(at time.Time, text string) {
		t.Helper()
		if err := run.LogEvent(t.Context(), h.Store, run.Event{Run: run.Ref{RunID: "demo"}, Time: at, Kind: "note", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	// until reads up to the entry of a text and returns what came.
	until := func(st *stream, last string) (got []string) {
		t.Helper()
		for {
			e := st.next(t)
			var in struct{ Event struct{ Text string } }
			if e.kind != "reset" {
				if err := json.Unmarshal([]byte(e.data), &in); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, strings.TrimSpace(e.kind+" "+in.Event.Text))
			if in.Event.Text == last || e.kind == "" {
				return got
			}
		}
	}
	now := time.Now().Add(time.Hour) // behind all that the run has left
	s := newSite(t, h.Store, nil)
	first := s.open(t, "/api/v1/events?run=demo", "")
	first.next(t)
	log(now, "one")
	got := until(first, "one")
	cursor := first.last
	first.close()
	witness := s.open(t, "/api/v1/events?run=demo", cursor)
	log(now.Add(-time.Minute), "late")
	log(now.Add(time.Minute), "two")
	until(witness, "two") // the server has told of them before the first page comes back
	again := s.open(t, "/api/v1/events?run=demo", cursor)
	got = append(got, until(again, "two")...)
	slices.Sort(got[1:])
	if diff := cmp.Diff([]string{"event one", "event late", "event two"}, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	log(now.Add(2*time.Minute), "three")
	other := newSite(t, h.Store, nil)
	lost := other.open(t, "/api/v1/events?run=demo", cursor)
	if e := lost.next(t); e.kind != "reset" {
		t.Errorf("another server, after %s: %+v, want a reset", cursor, e)
	}
	log(now.Add(3*time.Minute), "four")
	known := other.open(t, "/api/v1/events?run=demo", again.last)
	if diff := cmp.Diff([]string{"event three", "event four"}, until(known, "four")); diff != "" {
		t.Errorf("another server, after %s: want -, got +\n%s", again.last, diff)
	}
}

// TestManyStreams: two hundred pages see the same step, a page that reads nothing holds
// nobody up, and one too many is told so.
func TestManyStreams(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	s := newSite(t, h.Store, nil)
	silent, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := fmt.Fprintf(silent, "GET /api/v1/events?run=demo HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var all []*stream
	for range 200 {
		all = append(all, s.open(t, "/api/v1/events?run=demo", ""))
	}
	for _, st := range all {
		st.next(t)
	}
	h.Continue(t, 2, 2)
	for i, st := range all {
		for {
			if e := st.next(t); e.kind == "step" {
				break
			}
		}
		if i == 0 && !strings.HasPrefix(st.last, "demo@2.") {
			t.Errorf("cursor %s", st.last)
		}
	}
	for range 60 {
		s.open(t, "/api/v1/events?run=demo", "")
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/events?run=demo", ""); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one stream too many: %s %s", resp.Status, body)
	}
}

// stream is an event stream that a test reads.
type stream struct {
	body io.ReadCloser
	in   *bufio.Scanner
	last string // id
}

type event struct{ kind, data string }

func (s *site) open(t *testing.T, path, cursor string) *stream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", cursor)
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	return &stream{body: resp.Body, in: in}
}

func (st *stream) close() { _ = st.body.Close() }

func (st *stream) next(t *testing.T) event {
	t.Helper()
	var e event
	for st.in.Scan() {
		switch line := st.in.Text(); {
		case line == "" && e.kind != "":
			return e
		case strings.HasPrefix(line, "id: "):
			st.last = line[4:]
		case strings.HasPrefix(line, "event: "):
			e.kind = line[7:]
		case strings.HasPrefix(line, "data: "):
			e.data = line[6:]
		}
	}
	t.Fatalf("the stream has ended: %v", st.in.Err())
	return e
}
