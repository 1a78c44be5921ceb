package ui_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/internal/service"
	"temper/internal/temporalclient"
	"temper/ui"
)

func put(t *testing.T, store blob.Store, key, text string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), store, key, []byte(text), blob.Always); err != nil {
		t.Fatal(err)
	}
}

// filled asks for the list until all rows are filled.
func filled(t *testing.T, s *site) ui.RunList {
	t.Helper()
	for range 500 {
		if list := read[ui.RunList](t, s, "/runs"); list.Filling == 0 {
			return list
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the rows are not filled after 10 s")
	return ui.RunList{}
}

func rowsOf(t *testing.T, s *site) map[string]ui.RunRow {
	t.Helper()
	out := map[string]ui.RunRow{}
	for _, row := range filled(t, s).Runs {
		out[row.RunID] = row
	}
	return out
}

// TestDamagedRuns: a folder half written, and one of a program to come, spoil their own
// answers and no other.
func TestDamagedRuns(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	good := firstGroup(t, h, 2).ProblemID
	put(t, h.Store, "runs/half-plan/plan.json", `{"run_id": "half-plan", "sta`)
	put(t, h.Store, "runs/no-plan/steps/000001/step.json", `{}`)
	put(t, h.Store, "runs/newer/plan.json", `{"format": 9, "version": "v9.0.0", "run_id": "newer"}`)
	put(t, h.Store, "runs/earlier/plan.json", `{"run_id": "earlier", "seed": 1, "stages": []}`)
	put(t, h.Store, "catalog/earlier.json", `{"run_id": "earlier", "state": "done"}`)
	put(t, h.Store, h.Layout.StepLog(1), `{"step": 1, "metr`)
	put(t, h.Store, h.Layout.Index(2), "temper index 7\nwhat comes")
	s := newSite(t, h.Store, nil)
	rows := rowsOf(t, s)
	for id, want := range map[string]string{"half-plan": "plan.json", "newer": "format 9 by temper v9.0.0", "earlier": "build before v0.1.0"} {
		if row, ok := rows[id]; !ok || row.State != run.StateDamaged || !strings.Contains(row.Reason, want) {
			t.Errorf("%s: %+v, want it damaged for its %s", id, row, want)
		}
	}
	if _, ok := rows["no-plan"]; ok {
		t.Error("a folder without a plan is listed as a run")
	}
	if row := rows["demo"]; !strings.Contains(row.Problem, "000001/step.json") {
		t.Errorf("the run with half a record says %q", row.Problem)
	}
	for path, want := range map[string]string{
		"/runs/half-plan": "plan.json", "/runs/demo/series": "000001/step.json", "/runs/demo/steps/2/trajectories": "temper index 1", "/runs/demo/steps/1": "step.json",
	} {
		if resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, want) {
			t.Errorf("%s: %s %s, want 422 with %q", path, resp.Status, body, want)
		}
	}
	for _, path := range []string{"/runs/demo", "/runs/demo/config", "/runs/demo/checkpoints", "/runs/demo/steps/2", "/alerts", "/runs/demo/steps/2/" + good + "/0/tokens"} {
		if resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); path != "/runs/demo/checkpoints" && resp.StatusCode != http.StatusOK {
			t.Errorf("%s, which needs nothing that is damaged: %s %.200s", path, resp.Status, body)
		}
	}
}

// failing is a store whose requests fail or hang while it is told so.
type failing struct {
	blob.Store
	how atomic.Int32 // 0 well, 1 refuses, 2 hangs
}

func (f *failing) trouble(ctx context.Context) error {
	switch f.how.Load() {
	case 1:
		return fmt.Errorf("503 Slow Down: %w", blob.ErrUnavailable)
	case 2:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *failing) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	return f.Store.Get(ctx, key)
}

func (f *failing) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := f.trouble(ctx); err != nil {
		return blob.Info{}, err
	}
	return f.Store.Stat(ctx, key)
}

func (f *failing) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, nil, err
	}
	return f.Store.ListFolder(ctx, folder)
}

// TestStoreInTrouble: a store that answers 503 is named in one line, one that hangs does
// not keep the client that has gone, and both are forgotten when the store is well.
func TestStoreInTrouble(t *testing.T) {
	h := playedRun(t)
	store := &failing{Store: h.Store}
	store.how.Store(1)
	s := newSite(t, store, nil)
	for _, path := range []string{"/runs", "/runs/demo", "/runs/demo/series", "/runs/demo/steps/1", "/runs/demo/find?filter=reward=1"} {
		if resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "the store does not answer") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if resp, _ := s.ask(t, http.MethodGet, "/", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the page itself: %s", resp.Status)
	}
	store.how.Store(2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/runs", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := s.Client().Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a store that hangs: %v %v", resp, err)
	}
	store.how.Store(0)
	if row := rowsOf(t, s)["demo"]; len(row.Rewards) != 6 || row.Problem != "" {
		t.Errorf("the store is well again: %+v", row)
	}
}

// TestTemporalAway: the runs are shown with a word about it, and a command says why it
// was not given.
func TestTemporalAway(t *testing.T) {
	s := newSite(t, playedRun(t).Store, nil)
	s.steer.err = errors.New("connect to Temporal at 127.0.0.1:7233: refused")
	list := read[ui.RunList](t, s, "/runs")
	if list.Server || !strings.Contains(list.Remark, "Temporal does not answer") || len(list.Runs) != 2 {
		t.Errorf("%+v", list)
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/half/status", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "refused") {
		t.Errorf("status: %s %s", resp.Status, body)
	}
	resp, body := s.ask(t, http.MethodPost, "/api/v1/runs/half/commands/pause", `{"command":{"reason":"x"}}`, "Authorization", "Bearer "+token)
	if resp.StatusCode != http.StatusConflict || !strings.Contains(body, "refused") {
		t.Errorf("pause: %s %s", resp.Status, body)
	}
}

// TestExpressionsAndFilters: an expression on which others take for ever is answered at
// once, and a wrong one is explained.
func TestExpressionsAndFilters(t *testing.T) {
	s := newSite(t, playedRun(t).Store, nil)
	begin := time.Now()
	got := read[ui.SeriesView](t, s, "/runs/demo/series?match="+"%28%28%5Cw%7C%2F%29%2B%29%2B%24%21")
	if took := time.Since(begin); took > 5*time.Second || len(got.Values) != 0 {
		t.Errorf("%d series after %v", len(got.Values), took)
	}
	if got := read[ui.SeriesView](t, s, "/runs/demo/series?match=^CRITIC%2F"); len(got.Values) == 0 || got.Values["critic/rewards/mean"] == nil {
		t.Errorf("upper case: %d series", len(got.Values))
	}
	for path, want := range map[string]string{
		"/runs/demo/series?match=%28": "missing closing )", "/runs/demo/series?match=" + strings.Repeat("a", 201): "at most 200", "/runs/demo/find?filter=reward": "want a column",
		"/runs/demo/find?filter=nothing>1": "no such column", "/runs/demo/find?filter=reward>x": "want a number", "/runs/demo/find?filter=fate>1": "is a word",
		"/runs/demo/find?filter=" + strings.Repeat("reward=1+", 30): "more than 20 terms",
	} {
		if resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%.60s: %s %s", path, resp.Status, body)
		}
	}
}

// TestFind: a filter over the run finds what the rows of each step say.
func TestFind(t *testing.T) {
	s := newSite(t, playedRun(t).Store, nil)
	all := read[ui.FindView](t, s, "/runs/demo/find")
	want := map[string]int{}
	for step := 1; step <= 6; step++ {
		got := read[struct {
			Rows int `json:"rows"`
			Data struct {
				Reward []float64 `json:"reward"`
				Failed []float64 `json:"failed_calls"`
				Fate   ui.Words  `json:"fate"`
			} `json:"data"`
		}](t, s, fmt.Sprintf("/runs/demo/steps/%d/trajectories", step))
		for i := range got.Rows {
			fate := got.Data.Fate.Words[got.Data.Fate.At[i]]
			for filter, holds := range map[string]bool{
				"": true, "reward=1": got.Data.Reward[i] == 1, "reward<1+fate!=kept": got.Data.Reward[i] < 1 && fate != "kept", "fate:kept": fate == "kept", "failed_calls>=1": got.Data.Failed[i] >= 1,
			} {
				if holds {
					want[filter]++
				}
			}
		}
	}
	if all.Found != all.Rows || all.Found != want[""] || len(all.Steps) != 6 || all.Steps[0].Step != 6 || all.Unread+all.Missing != 0 {
		t.Errorf("without a filter: %d of %d in %d steps, want %d", all.Found, all.Rows, len(all.Steps), want[""])
	}
	for filter, n := range want {
		got := read[ui.FindView](t, s, "/runs/demo/find?filter="+filter)
		if got.Found != n || len(got.First) != min(n, 200) {
			t.Errorf("%s: %d, %d rows, want %d", filter, got.Found, len(got.First), n)
		}
	}
	first := read[ui.FindView](t, s, "/runs/demo/find?filter=fate=kept").First[0]
	if first.Step != 6 || first.Fate != "kept" || first.Problem == "" {
		t.Errorf("first row: %+v", first)
	}
}

// TestManyRuns: 5,000 runs are listed, and two dashboards on one store say the same.
func TestManyRuns(t *testing.T) {
	store := memblob.New()
	const num = 5000
	for i := range num {
		id := fmt.Sprintf("run-%04d", i)
		put(t, store, artifact.Layout{RunID: id}.Plan(), `{}`)
		if err := run.PutEntry(t.Context(), store, run.CatalogEntry{RunID: id, State: "done", Step: i, NumSteps: num, Started: time.Unix(int64(i), 0)}, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	alone := func(c *ui.Config) { c.Steer = nil }
	a, b := newSite(t, store, alone), newSite(t, store, alone)
	begin := time.Now()
	first, second := read[ui.RunList](t, a, "/runs"), read[ui.RunList](t, b, "/runs")
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("two lists of %d runs took %v", num, took)
	}
	if len(first.Runs) != num || len(second.Runs) != num || first.Runs[0].RunID != "run-4999" || first.Runs[num-1].RunID != second.Runs[num-1].RunID {
		t.Errorf("%d and %d runs, newest %s", len(first.Runs), len(second.Runs), first.Runs[0].RunID)
	}
}

// place is a service that a test makes up.
type place struct {
	processes []service.Process
	schedules []temporalclient.View
	err       error
}

func (p *place) Processes(context.Context) ([]service.Process, error) { return p.processes, p.err }

func (p *place) Schedules(context.Context) ([]temporalclient.View, error) { return p.schedules, p.err }

// TestServicesAndSchedules: processes come with their numbers, and what does not answer
// is a remark.
func TestServicesAndSchedules(t *testing.T) {
	p := &place{processes: []service.Process{{Name: "worker", State: "healthy", Restarts: 2, Metrics: "# HELP queue_length Calls that wait.\n# TYPE queue_length gauge\nqueue_length{node=\"a b\"} 3\nx_bucket{le=\"1\"} 4\ngo_threads 7\nbad\nnan_value NaN\n"}},
		schedules: []temporalclient.View{{ID: "nightly", Good: "run-1@v3"}}}
	s := newSite(t, playedRun(t).Store, func(c *ui.Config) { c.Place = p })
	_, body := s.ask(t, http.MethodGet, "/api/v1/services", "")
	for _, want := range []string{`"restarts":2`, `{"name":"queue_length{node=\"a b\"}","value":3,"help":"Calls that wait."}`, `{"name":"nan_value","value":"NaN"}`} {
		if !strings.Contains(body, want) {
			t.Errorf("services lack %s: %s", want, body)
		}
	}
	for _, not := range []string{"x_bucket", "go_threads", `"bad"`} {
		if strings.Contains(body, not) {
			t.Errorf("services have %s", not)
		}
	}
	if got := read[ui.SchedulesView](t, s, "/schedules"); len(got.Schedules) != 1 || got.Schedules[0].Good != "run-1@v3" {
		t.Errorf("schedules: %+v", got)
	}
	p.err = errors.New("nobody is there")
	if got := read[ui.SchedulesView](t, s, "/schedules"); !strings.Contains(got.Remark, "nobody is there") {
		t.Errorf("without Temporal: %+v", got)
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/services", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "nobody is there") {
		t.Errorf("without processes: %s %s", resp.Status, body)
	}
	alone := newSite(t, playedRun(t).Store, nil)
	if got := read[ui.ServicesView](t, alone, "/services"); got.Remark == "" || len(got.Processes) > 0 {
		t.Errorf("a dashboard of a store alone: %+v", got)
	}
}
