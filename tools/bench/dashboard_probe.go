package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/tools/bench/meter"
)

// dashboardProbe asks a dashboard for its pages.
type dashboardProbe struct {
	store  blob.Store
	run    string
	delay  time.Duration
	rounds int
}

// dashboardRow is what one answer takes: medians of the rounds.
type dashboardRow struct {
	What     string        `json:"what"`
	Cold     time.Duration `json:"cold_ns"`
	ColdCPU  time.Duration `json:"cold_cpu_ns"`
	Requests int64         `json:"requests"`
	Warm     time.Duration `json:"warm_ns"`
	WarmCPU  time.Duration `json:"warm_cpu_ns"`
	Bytes    int64         `json:"bytes"`
}

// slowStore counts the requests to a store, and makes each wait.
type slowStore struct {
	blob.Store
	delay time.Duration
	count atomic.Int64
}

func (s *slowStore) wait(ctx context.Context) error {
	s.count.Add(1)
	if s.delay == 0 {
		return nil
	}
	select {
	case <-time.After(s.delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

func (s *slowStore) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.GetRange(ctx, key, offset, length)
}

func (s *slowStore) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := s.wait(ctx); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Stat(ctx, key)
}

func (s *slowStore) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.List(ctx, prefix)
}

func (s *slowStore) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	if err := s.wait(ctx); err != nil {
		return nil, nil, err
	}
	return s.Store.ListFolder(ctx, folder)
}

// measure asks for each page, first of a dashboard that has read nothing.
func (p *dashboardProbe) measure(ctx context.Context) ([]dashboardRow, error) {
	problem, long, step, err := p.longest(ctx)
	if err != nil {
		return nil, err
	}
	base := "/api/v1/runs/" + p.run
	group := fmt.Sprintf("%s/steps/%d/%s", base, step, problem)
	pages := []struct{ what, path string }{
		{"list of runs", "/api/v1/runs"},
		{"a run", base},
		{"all series of a run", base + "/series"},
		{"a step", fmt.Sprintf("%s/steps/%d", base, step)},
		{"rows of a step", fmt.Sprintf("%s/steps/%d/trajectories", base, step)},
		{"a group", group},
		{"the longest trajectory", fmt.Sprintf("%s/%d", group, long)},
		{"its tokens", fmt.Sprintf("%s/%d/tokens", group, long)},
		{"rows of the whole run by a filter", base + "/find?filter=failed_calls%3E5+reward%3D1"},
	}
	var out []dashboardRow
	for _, page := range pages {
		row, err := p.page(ctx, page.what, page.path)
		if err != nil {
			return out, err
		}
		out = append(out, row)
	}
	for _, last := range []func(context.Context) (dashboardRow, error){
		func(ctx context.Context) (dashboardRow, error) {
			return p.everyRow(ctx, base+"/find?filter=failed_calls%3E5+reward%3D1")
		},
		func(ctx context.Context) (dashboardRow, error) { return p.search(ctx, base) },
	} {
		row, err := last(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, row)
	}
	return out, nil
}

// everyRow is a filter over all rows of the run: cold until all indexes are read, which
// takes several answers, and warm for one answer after that.
func (p *dashboardProbe) everyRow(ctx context.Context, path string) (dashboardRow, error) {
	row := dashboardRow{What: "all rows by a filter, and again"}
	store := &slowStore{Store: p.store, delay: p.delay}
	server, err := newDashboard(store)
	if err != nil {
		return row, err
	}
	defer server.Close()
	begin := meter.Now()
	for left := 1; left > 0; {
		var view struct {
			Unread int `json:"unread"`
		}
		if err := decode(ctx, server, path, &view); err != nil {
			return row, err
		}
		left = view.Unread
	}
	cold := begin.Since(1)
	row.Cold, row.ColdCPU, row.Requests = cold.Wall, cold.CPU, store.count.Load()
	var warm []meter.Cost
	for range p.rounds {
		begin := meter.Now()
		if row.Bytes, err = ask(ctx, server, path); err != nil {
			return row, err
		}
		warm = append(warm, begin.Since(1))
	}
	w := meter.MedianCost(warm)
	row.Warm, row.WarmCPU = w.Wall, w.CPU
	return row, nil
}

// search looks for a text that each response has, which costs the first hit, and then for
// one that none has, in all steps whose texts are stored.
func (p *dashboardProbe) search(ctx context.Context, base string) (dashboardRow, error) {
	row := dashboardRow{What: "a text: first hit, then all texts"}
	store := &slowStore{Store: p.store, delay: p.delay}
	server, err := newDashboard(store)
	if err != nil {
		return row, err
	}
	defer server.Close()
	begin := meter.Now()
	if row.Bytes, err = ask(ctx, server, base+"/search?q=e&limit=1"); err != nil {
		return row, err
	}
	first := begin.Since(1)
	begin = meter.Now()
	if _, err = ask(ctx, server, base+"/search?q=no-such-text-is-anywhere"); err != nil {
		return row, err
	}
	all := begin.Since(1)
	row.Cold, row.ColdCPU, row.Requests, row.Warm, row.WarmCPU = first.Wall, first.CPU, store.count.Load(), all.Wall, all.CPU
	return row, nil
}

// longest finds the longest trajectory of the newest step.
func (p *dashboardProbe) longest(ctx context.Context) (problem string, rollout, step int, err error) {
	server, err := newDashboard(p.store)
	if err != nil {
		return "", 0, 0, err
	}
	defer server.Close()
	var view struct {
		Step int `json:"step"`
	}
	if err := decode(ctx, server, "/api/v1/runs/"+p.run, &view); err != nil {
		return "", 0, 0, err
	}
	var rows struct {
		Data struct {
			Problem struct {
				Words []string `json:"words"`
				At    []int    `json:"at"`
			} `json:"problem"`
			Rollout []int `json:"rollout"`
			Tokens  []int `json:"response_tokens"`
		} `json:"data"`
	}
	if err := decode(ctx, server, fmt.Sprintf("/api/v1/runs/%s/steps/%d/trajectories", p.run, view.Step), &rows); err != nil {
		return "", 0, 0, err
	}
	best := 0
	for i, n := range rows.Data.Tokens {
		if n > rows.Data.Tokens[best] {
			best = i
		}
	}
	return rows.Data.Problem.Words[rows.Data.Problem.At[best]], rows.Data.Rollout[best], view.Step, nil
}

func (p *dashboardProbe) page(ctx context.Context, what, path string) (dashboardRow, error) {
	row := dashboardRow{What: what}
	var cold, warm []meter.Cost
	for range p.rounds {
		store := &slowStore{Store: p.store, delay: p.delay}
		server, err := newDashboard(store)
		if err != nil {
			return row, err
		}
		begin := meter.Now()
		row.Bytes, err = ask(ctx, server, path)
		cold = append(cold, begin.Since(1))
		row.Requests = store.count.Load()
		if err == nil {
			begin = meter.Now()
			_, err = ask(ctx, server, path)
			warm = append(warm, begin.Since(1))
		}
		server.Close()
		if err != nil {
			return row, err
		}
	}
	c, w := meter.MedianCost(cold), meter.MedianCost(warm)
	row.Cold, row.ColdCPU, row.Warm, row.WarmCPU = c.Wall, c.CPU, w.Wall, w.CPU
	return row, nil
}

// answer asks a dashboard without a network between.
func answer(ctx context.Context, h http.Handler, path string) (*httptest.ResponseRecorder, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %d %.300s", path, w.Code, w.Body)
	}
	return w, nil
}

func ask(ctx context.Context, h http.Handler, path string) (int64, error) {
	w, err := answer(ctx, h, path)
	if err != nil {
		return 0, err
	}
	return int64(w.Body.Len()), nil
}

func decode(ctx context.Context, h http.Handler, path string, v any) error {
	w, err := answer(ctx, h, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(w.Body.Bytes(), v)
}
