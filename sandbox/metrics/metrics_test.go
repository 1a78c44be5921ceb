package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/metrics"
	"temper/sandbox/sandboxtest"
)

// scrape returns the samples of r by name and labels.
func scrape(t *testing.T, r *metrics.Recorder) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", metrics.Path, nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	samples := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			samples[name] = value
		}
	}
	return samples
}

// want compares some samples.
func want(t *testing.T, got, want map[string]string) {
	t.Helper()
	picked := map[string]string{}
	for name := range want {
		if value, ok := got[name]; ok {
			picked[name] = value
		}
	}
	if diff := cmp.Diff(picked, want); diff != "" {
		t.Errorf("samples (-got +want):\n%s", diff)
	}
}

func TestCallsAreCountedByOutcome(t *testing.T) {
	answers := map[string]func() (sandbox.Result, error){
		"ok": func() (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusOK, Usage: sandbox.Usage{
				Wall: 30 * time.Millisecond, CPU: 20 * time.Millisecond, Queue: 2 * time.Second,
			}}, nil
		},
		"cut": func() (sandbox.Result, error) {
			return sandbox.Result{Status: sandbox.StatusOutputLimit, Stdout: "a...(truncated)...b"}, nil
		},
		"refused":     func() (sandbox.Result, error) { return sandbox.Result{Status: sandbox.StatusRefused}, nil },
		"new status":  func() (sandbox.Result, error) { return sandbox.Result{Status: "novel"}, nil },
		"overloaded":  func() (sandbox.Result, error) { return sandbox.Result{}, &sandbox.Overloaded{Detail: "full"} },
		"deadline":    func() (sandbox.Result, error) { return sandbox.Result{}, context.DeadlineExceeded },
		"cancelled":   func() (sandbox.Result, error) { return sandbox.Result{}, context.Canceled },
		"unavailable": func() (sandbox.Result, error) { return sandbox.Result{}, fmt.Errorf("%w: x", sandbox.ErrUnavailable) },
	}
	fake := &sandboxtest.Fake{Func: func(r sandbox.Request) (sandbox.Result, error) { return answers[r.ID]() }}
	r := metrics.New(metrics.Sources{}, nil)
	exec := metrics.Wrap(fake, r)
	for name, answer := range answers {
		wantResult, wantErr := answer()
		if wantErr == nil {
			wantResult.ID = name
		}
		got, err := exec.Execute(t.Context(), sandbox.Request{ID: name})
		if diff := cmp.Diff(got, wantResult); diff != "" || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: the answer changed: %v\n%s", name, err, diff)
		}
	}
	want(t, scrape(t, r), map[string]string{
		`rl_sandbox_calls_total{status="ok"}`:                          "1",
		`rl_sandbox_calls_total{status="output_limit"}`:                "1",
		`rl_sandbox_calls_total{status="refused"}`:                     "1",
		`rl_sandbox_calls_total{status="internal"}`:                    "1",
		`rl_sandbox_calls_total{status="overloaded"}`:                  "1",
		`rl_sandbox_calls_total{status="deadline"}`:                    "1",
		`rl_sandbox_calls_total{status="cancelled"}`:                   "1",
		`rl_sandbox_calls_total{status="unavailable"}`:                 "1",
		`rl_sandbox_calls_total{status="time_limit"}`:                  "0",
		`rl_sandbox_calls_in_flight`:                                   "0",
		`rl_sandbox_truncated_outputs_total{stream="stdout"}`:          "1",
		`rl_sandbox_truncated_outputs_total{stream="stderr"}`:          "0",
		`rl_sandbox_wall_seconds_bucket{status="ok",le="0.025"}`:       "0",
		`rl_sandbox_wall_seconds_bucket{status="ok",le="0.05"}`:        "1",
		`rl_sandbox_cpu_seconds_bucket{status="ok",le="0.01"}`:         "0",
		`rl_sandbox_cpu_seconds_bucket{status="ok",le="0.025"}`:        "1",
		`rl_sandbox_queue_seconds_sum{status="ok"}`:                    "2",
		`rl_sandbox_wall_seconds_count{status="refused"}`:              "0",
		`rl_sandbox_wall_seconds_count{status="overloaded"}`:           "0",
		`rl_sandbox_call_seconds_count{status="overloaded"}`:           "1",
		`rl_sandbox_call_seconds_bucket{status="ok",le="300"}`:         "1",
		`rl_sandbox_call_seconds_bucket{status="refused",le="0.0025"}`: "1",
	})
}

func TestInFlight(t *testing.T) {
	r := metrics.New(metrics.Sources{}, nil)
	exec := metrics.Wrap(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		want(t, scrape(t, r), map[string]string{"rl_sandbox_calls_in_flight": "1"})
		return sandbox.Result{Status: sandbox.StatusOK}, nil
	}}, r)
	if _, err := exec.Execute(t.Context(), sandbox.Request{}); err != nil {
		t.Fatal(err)
	}
}

// everySource fills every series.
func everySource() metrics.Sources {
	waiting := map[string]int{"": 100, "\xff": 99}
	for i := range 30 {
		waiting[fmt.Sprintf("run%02d", i)] = i
	}
	return metrics.Sources{
		Load:     func() httpapi.Load { return httpapi.Load{Slots: 8, Busy: 7, Waiting: 6, Queue: 5, Draining: true} },
		Zygotes:  func() metrics.Zygotes { return metrics.Zygotes{Alive: 4, Deaths: 3} },
		Sessions: func() metrics.Sessions { return metrics.Sessions{Live: 2, Known: 9} },
		Nodes: func() []metrics.Node {
			return []metrics.Node{{Name: "a:1", Up: true, Slots: 64, InFlight: 60, Retries: 2, Deaths: 1}, {Name: "b:1"}}
		},
		Router: func() metrics.Router {
			return metrics.Router{WaitingByRun: waiting, Overloads: 11, Bytes: 12, MaxBytes: 13}
		},
		Layers: map[string]bool{"seccomp": true, "landlock": false}, Build: "v1",
	}
}

func TestSources(t *testing.T) {
	got := scrape(t, metrics.New(everySource(), nil))
	want(t, got, map[string]string{
		"rl_sandbox_slots": "8", "rl_sandbox_slots_busy": "7", "rl_sandbox_queue_calls": "6", "rl_sandbox_queue_limit_calls": "5",
		"rl_sandbox_draining": "1", "rl_sandbox_zygotes": "4", "rl_sandbox_zygote_deaths_total": "3",
		"rl_sandbox_sessions_live": "2", "rl_sandbox_sessions_known": "9",
		`rl_sandbox_node_up{node="a:1"}`: "1", `rl_sandbox_node_up{node="b:1"}`: "0", `rl_sandbox_node_slots{node="a:1"}`: "64",
		`rl_sandbox_node_calls_in_flight{node="a:1"}`: "60", `rl_sandbox_node_retries_total{node="a:1"}`: "2", `rl_sandbox_node_deaths_total{node="a:1"}`: "1",
		`rl_sandbox_queue_run_calls{run="none"}`: "100", `rl_sandbox_queue_run_calls{run="?"}`: "99",
		`rl_sandbox_queue_run_calls{run="run29"}`: "29", `rl_sandbox_queue_run_calls{run="run12"}`: "12",
		`rl_sandbox_queue_run_calls{run="other"}`: "66", // 0 + 1 + ... + 11
		"rl_sandbox_overloads_total":              "11", "rl_sandbox_queue_bytes": "12", "rl_sandbox_queue_limit_bytes": "13",
		`rl_sandbox_layer_on{layer="seccomp"}`: "1", `rl_sandbox_layer_on{layer="landlock"}`: "0", `rl_sandbox_build_info{build="v1"}`: "1",
	})
	runs := 0
	for name := range got {
		if strings.HasPrefix(name, "rl_sandbox_queue_run_calls") {
			runs++
		}
	}
	if runs != 21 {
		t.Errorf("%d runs have a series of their own, want 20 and the rest", runs)
	}
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		if got[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestDocumented holds the table of docs/sandbox.md to the series that there are.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(rl_sandbox_[a-z_]+)").FindAllSubmatch(page, -1) {
		documented = append(documented, string(m[1]))
	}
	w := httptest.NewRecorder()
	metrics.New(everySource(), nil).Handler().ServeHTTP(w, httptest.NewRequest("GET", metrics.Path, nil))
	var served []string
	for _, m := range regexp.MustCompile("(?m)^# TYPE (rl_sandbox_[a-z_]+)").FindAllStringSubmatch(w.Body.String(), -1) {
		served = append(served, m[1])
	}
	slices.Sort(documented)
	slices.Sort(served)
	if diff := cmp.Diff(documented, served); diff != "" {
		t.Errorf("docs/sandbox.md and the code name different series (-documented +served):\n%s", diff)
	}
}

func TestLogNamesCallsWithoutTheirText(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	exec := metrics.Wrap(&sandboxtest.Fake{Func: func(r sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{
			ID: r.ID, Status: sandbox.StatusError, Stdout: "PRIVATE", Stderr: "PRIVATE", Value: "PRIVATE", ExitCode: 3, Reason: "PRIVATE",
			Error: &sandbox.PythonError{Type: "PRIVATE", Message: "PRIVATE", Source: "PRIVATE"},
			Usage: sandbox.Usage{Wall: 1500 * time.Microsecond, Queue: time.Millisecond},
		}, nil
	}}, metrics.New(metrics.Sources{}, logger))
	for range 1000 {
		_, err := exec.Execute(t.Context(), sandbox.Request{
			ID: "call" + strings.Repeat("x", 1000), Run: "run", Code: "PRIVATE", Stdin: "PRIVATE", Fixture: "PRIVATE", History: []string{"PRIVATE"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(out.String(), "PRIVATE") {
		t.Errorf("the log holds text of the program:\n%s", out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 50 || len(lines) > 150 { // 50 a second, and a second may turn over
		t.Errorf("%d lines of 1000 calls, want some", len(lines))
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	delete(first, "time")
	delete(first, "total_ms")
	if diff := cmp.Diff(first, map[string]any{
		"level": "DEBUG", "msg": "call answered", "id": "call" + strings.Repeat("x", 60), "run": "run", "status": "error",
		"queue_ms": 1.0, "wall_ms": 1.5, "exit_code": 3.0, "skipped": 0.0,
	}); diff != "" {
		t.Errorf("line (-got +want):\n%s", diff)
	}
}

type instant struct{}

func (instant) Execute(context.Context, sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2\n"}, nil
}

// BenchmarkCall is the cost of recording; 2 us are allowed.
func BenchmarkCall(b *testing.B) {
	exec := metrics.Wrap(instant{}, metrics.New(everySource(), nil))
	ctx, req := context.Background(), sandbox.Request{ID: "a", Code: "print(1+1)"}
	for b.Loop() {
		if _, err := exec.Execute(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}
