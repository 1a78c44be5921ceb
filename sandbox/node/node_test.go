package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/metrics"
	"temper/sandbox/node"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/server"
)

// running is a node on a Unix socket.
type running struct {
	client *httpapi.Client
	ready  node.Ready
	end    context.CancelFunc
	done   chan error
}

// stop drains the node and returns what Serve returned.
func (r *running) stop() error {
	r.end()
	err := <-r.done
	r.done <- nil
	return err
}

// serve runs a node until the test ends.
func serve(t *testing.T, cfg node.Config, logger *slog.Logger) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan node.Ready, 1)
	cfg.Server.Listen = httpapi.UnixPrefix + t.TempDir() + "/s"
	cfg.OnReady = func(r node.Ready) { ready <- r }
	r := &running{end: cancel, done: make(chan error, 1)}
	go func() { r.done <- node.Serve(ctx, cfg, logger) }()
	select {
	case r.ready = <-ready:
	case err := <-r.done:
		t.Fatalf("Serve: %v", err)
	}
	var err error
	r.client, err = httpapi.NewClient(r.ready.Address, httpapi.Options{Token: cfg.Server.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.client.Close()
		if err := r.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestNodeConforms(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 2, Build: "v1", Server: server.Config{Token: "secret"}}, quiet())
	sandboxtest.Run(t, func(*testing.T) sandbox.Executor { return n.client })
	status := n.status(t)
	if status.Pool.Zygotes != 2 || status.Pool.Executed == 0 || status.Version == "" || len(status.Layers) == 0 ||
		status.Load.Slots == 0 || status.Load.Draining || status.Build != "v1" || status.Limits.Wall == 0 {
		t.Errorf("status %+v lacks something", status)
	}
}

func TestServeNamesWhatItCannotUse(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		name   string
		listen string
		cfg    node.Config
		want   string
	}{
		{"busy port", busy.Addr().String(), node.Config{}, busy.Addr().String() + ": bind: address already in use"},
		{"open to all", ":0", node.Config{}, "set TEMPER_SANDBOX_TOKEN"},
		{"missing interpreter", "127.0.0.1:0", node.Config{Python: "python-nowhere"}, "python interpreter python-nowhere: not found"},
		{"unknown layer", "127.0.0.1:0", node.Config{Require: []string{"moat"}}, "moat (no such layer)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Server.Listen = c.listen
			err := node.Serve(t.Context(), c.cfg, quiet())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line with %q", err, c.want)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 1, Slots: 3, Build: "v1", Server: server.Config{Token: "secret"}}, quiet())
	for _, code := range []string{"1", "1/0", "print('x' * 100_000)"} {
		if _, err := n.client.Execute(t.Context(), sandbox.Request{Code: code}); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := n.get(t, metrics.Path, ""); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d, want 401", status)
	}
	status, body := n.get(t, metrics.Path, "secret")
	for _, want := range []string{
		`rl_sandbox_calls_total{status="ok"} 2`, `rl_sandbox_calls_total{status="error"} 1`,
		`rl_sandbox_wall_seconds_count{status="error"} 1`, `rl_sandbox_truncated_outputs_total{stream="stdout"} 1`,
		"rl_sandbox_slots 3", "rl_sandbox_zygotes 1", `rl_sandbox_layer_on{layer="rlimits"} 1`, `rl_sandbox_build_info{build="v1"} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("%d: metrics lack %s", status, want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

func TestSessions(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 1}, quiet())
	cell := func(run, code string) string {
		t.Helper()
		res, err := n.client.Execute(t.Context(), sandbox.Request{Run: run, Session: "t1", Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return res.Value
	}
	cell("", "x = 20")
	if got := cell("", "x + 1"); got != "21" {
		t.Errorf("the second cell sees %q, want 21", got)
	}
	if got := cell("other", "'x' in globals()"); got != "False" {
		t.Errorf("a session of the same name in another run: x is there: %s", got)
	}
	var status node.Status
	if err := n.client.Status(t.Context(), &status); err != nil || status.Sessions.Kernels != 2 {
		t.Errorf("status of two sessions: %+v, %v", status.Sessions, err)
	}
	if _, body := n.get(t, metrics.Path, ""); !strings.Contains(body, "\nrl_sandbox_sessions_live 2\n") {
		t.Error("metrics lack the two sessions")
	}
	for _, want := range []bool{true, false} {
		if had, err := n.client.CloseSession(t.Context(), "other", "t1"); err != nil || had != want {
			t.Errorf("CloseSession: %t, %v, want %t", had, err, want)
		}
	}
	if got := cell("", "x"); got != "20" {
		t.Errorf("after the end of another run's session x is %q, want 20", got)
	}
	if had, err := n.client.CloseSession(t.Context(), "", "t1"); err != nil || !had {
		t.Errorf("CloseSession without a run: %t, %v", had, err)
	}
	if got := cell("", "'x' in globals()"); got != "False" {
		t.Errorf("after the end of the session x is there: %s", got)
	}
}

func TestCodeJudge(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 1, Slots: 5, Server: server.Config{Token: "secret"}}, quiet())
	body := `{"type": "python", "solution": "print(int(input()) + 1)", "input": "41", "expected_output": "42"}`
	if status, got := n.ask(t, http.MethodPost, "/judge", "secret", body); status != 200 || !strings.Contains(got, `"success":true`) {
		t.Errorf("/judge: %d %s", status, got)
	}
	if status, got := n.get(t, "/status", "secret"); status != 200 || got != `{"queue":0,"num_workers":5}` {
		t.Errorf("/status: %d %q", status, got)
	}
	if status, _ := n.ask(t, http.MethodPost, "/judge", "", body); status != http.StatusUnauthorized {
		t.Errorf("/judge without the token: %d, want 401", status)
	}
	if status, got := n.get(t, "/ping", ""); status != 200 || strings.TrimSpace(got) != `"pong"` {
		t.Errorf("/ping without the token: %d %s", status, got)
	}
	if _, got := n.get(t, metrics.Path, "secret"); !strings.Contains(got, "\n"+`rl_sandbox_calls_total{status="ok"} 1`+"\n") {
		t.Error("the call is not counted")
	}
}

// status is what a node without a token says of itself, or with the token secret.
func (r *running) status(t *testing.T) (s node.Status) {
	t.Helper()
	code, body := r.get(t, httpapi.PathStatus, "secret")
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		t.Fatalf("status: %d %s: %v", code, body, err)
	}
	return s
}

func (r *running) get(t *testing.T, path, token string) (int, string) {
	t.Helper()
	return r.ask(t, http.MethodGet, path, token, "")
}

// ask makes a request over HTTP/1.1.
func (r *running) ask(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(r.ready.Address, httpapi.UnixPrefix))
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://sandbox"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestZygoteDeath: a warm interpreter that dies is told, counted and replaced.
func TestZygoteDeath(t *testing.T) {
	var log safeBuffer
	n := serve(t, node.Config{Zygotes: 1}, slog.New(slog.NewJSONHandler(&log, nil)))
	for _, pid := range children(t) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for status := n.status(t); status.Pool.Deaths != 1 || status.Pool.Zygotes != 1; status = n.status(t) {
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := n.client.Execute(t.Context(), sandbox.Request{Code: "1"}); err != nil {
		t.Error(err)
	}
	if _, body := n.get(t, metrics.Path, ""); !strings.Contains(body, "\nrl_sandbox_zygote_deaths_total 1\n") {
		t.Error("the death is not counted")
	}
	if want := `"level":"WARN","msg":"sandbox interpreter died"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, log.String())
	}
}

// children are the processes that this one has started and not yet waited for.
func children(t *testing.T) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		t.Fatal("no interpreter runs")
	}
	return pids
}

// TestDrain: the end is announced on streams, new calls are refused as
// unavailable, and a call inside gets its answer.
func TestDrain(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 1, Drain: 30 * time.Second}, quiet())
	stream, err := httpapi.Dial(t.Context(), n.ready.Address, httpapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	answer := make(chan error, 1)
	go func() {
		res, err := stream.Execute(t.Context(), sandbox.Request{Code: "import time\ntime.sleep(3)\nprint(1)"})
		if err == nil && res.Stdout != "1\n" {
			err = fmt.Errorf("result %+v", res)
		}
		answer <- err
	}()
	for stream.Load().Busy == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	for !stream.Load().Draining {
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := stream.Execute(t.Context(), sandbox.Request{Code: "1"}); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "draining") {
		t.Errorf("new call during the drain: %v, want unavailable", err)
	}
	if err := <-answer; err != nil {
		t.Errorf("the call inside: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestDrainKillsWhatDoesNotEnd(t *testing.T) {
	n := serve(t, node.Config{Zygotes: 1, Drain: 200 * time.Millisecond}, quiet())
	answer := make(chan error, 1)
	go func() {
		_, err := n.client.Execute(t.Context(), sandbox.Request{Code: "while True: pass"})
		answer <- err
	}()
	for n.status(t).Pool.Busy == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if err := n.stop(); err == nil || !strings.Contains(err.Error(), "calls were killed after the drain time of 200ms") {
		t.Errorf("Serve: %v", err)
	}
	if err := <-answer; !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("the killed call: %v, want unavailable", err)
	}
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// secret is in every text of the calls below, and in nothing else.
const secret = "tuberose"

// leaks are programs that try to be written down.
var leaks = map[string]string{
	"prints":           "print('tuberose'); import sys; sys.stderr.write('tuberose\\n')",
	"raises":           "class tuberose(Exception): pass\nraise tuberose('tuberose')",
	"syntax error":     "tuberose tuberose",
	"every descriptor": "import os\nfor fd in range(3, 4096):\n    try: os.write(fd, b'tuberose\\n')\n    except OSError: pass",
	"devices and proc": "for path in ('/dev/stderr', '/dev/tty', '/dev/console', '/dev/kmsg', '/dev/log', '/proc/1/fd/2', '/proc/self/fd/2'):\n" +
		"    try: open(path, 'w').write('tuberose\\n')\n    except OSError: pass",
	"frozen streams": "import sys\nfor s in (sys.__stderr__, sys.__stdout__): s.write('tuberose\\n'); s.flush()\nsys.stderr.buffer.raw.write(b'tuberose\\n')",
	"fatal error":    "import ctypes\nctypes.pythonapi.Py_FatalError(b'tuberose')",
	"fault handler":  "import faulthandler\nfaulthandler.enable()\ndef tuberose(): faulthandler._sigsegv()\ntuberose()",
	"exit hook":      "import atexit\natexit.register(lambda: 1 / 0 if 'tuberose' else 0)\nraise SystemExit('tuberose')",
	"unraisable":     "class T:\n    def __del__(self): raise ValueError('tuberose')\nT()",
	"kills parents":  "import os, signal\nfor pid in (os.getppid(), 1, -1):\n    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass\nprint('tuberose')",
	"abort":          "import os, sys\nsys.stderr.write('tuberose\\n'); sys.stderr.flush(); os.abort()",
	"time limit":     "print('tuberose', flush=True)\nwhile True: pass",
	"memory limit":   "x = ['tuberose']\nwhile True: x *= 2",
	"flood":          "while True: print('tuberose' * 1000)",
	"surrogates":     "print('tuberose \\udcff'); raise ValueError('tuberose \\udcff')",
	"long name":      "x" + strings.Repeat("tuberose", 1000) + " = 1; print(undefined_tuberose)",
}

// TestNoProgramTextInTheLog runs programs and refused calls with everything logged.
func TestNoProgramTextInTheLog(t *testing.T) {
	var log safeBuffer
	n := serve(t, node.Config{Zygotes: 2, Build: "v1", Defaults: sandbox.Limits{Wall: 400 * time.Millisecond, CPU: 400 * time.Millisecond, Memory: 64 << 20}},
		slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var calls sync.WaitGroup
	run := func(req sandbox.Request) {
		calls.Go(func() {
			res, err := n.client.Execute(t.Context(), req)
			if err != nil || res.Status == sandbox.StatusInternal {
				t.Errorf("%s: %+v, %v", req.ID, res, err)
			}
		})
	}
	for name, code := range leaks {
		run(sandbox.Request{ID: name, Code: code, Stdin: secret})
		run(sandbox.Request{ID: name + " as a cell", Session: name, Code: code, Stdin: secret})
	}
	calls.Go(func() {
		n.ask(t, http.MethodPost, "/judge/batch", "", `{"type": "batch", "submissions": [{"type": "python", "solution": "tuberose", "input": "tuberose"}, {"type": "tuberose"}]}`)
		n.ask(t, http.MethodPost, "/v1/execute", "", `{"code": "tuberose", "tuberose": 1}`)
	})
	run(sandbox.Request{ID: "cell", Session: "s", Code: "raise ValueError('tuberose')", History: []string{"x = 'tuberose'", "tuberose tuberose"}})
	run(sandbox.Request{ID: "fixture", Fixture: "raise ValueError('tuberose')", Code: "1"})
	run(sandbox.Request{ID: "refused", Code: "'tuberose'", Profile: "tuberose", Limits: sandbox.Limits{Wall: -1}})
	run(sandbox.Request{ID: "refused by nul", Code: "tuberose\x00"})
	calls.Wait()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if strings.Contains(text, secret) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) {
				t.Errorf("the log holds text of a program: %s", line)
			}
		}
	}
	for _, want := range []string{`"msg":"call answered","id":"raises"`, `"status":"refused"`, `"msg":"sandbox node serves"`, `"build":"v1"`, `"layers_on":[`, `"msg":"draining"`, `"msg":"drained"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
}
