package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/series"
	"temper/workflows"
)

// About describes a dashboard.
type About struct {
	Build string `json:"build"`
	Store string `json:"store"`
	// Steering tells why commands cannot be sent; empty when they can.
	Steering string `json:"steering,omitempty"`
	// TemporalUI is the address of Temporal's own page.
	TemporalUI string `json:"temporal_ui,omitempty"`
}

func (sp *servicePages) about(*request) (About, error) {
	out := About{Build: sp.build, Store: sp.store.Locate(history.Folder), TemporalUI: sp.temporalUI}
	switch {
	case sp.steer == nil:
		out.Steering = "this dashboard reads alone: it was started without a Temporal server"
	case sp.token == "":
		out.Steering = "this dashboard has no token, so that it only reads"
	}
	return out, nil
}

func (sp *servicePages) describeSeries(r *request) ([]series.Metric, error) {
	r.immutable = true
	return series.All(), nil
}

// RunRow is a line of the table of runs.
type RunRow struct {
	run.CatalogEntry
	// Rewards is the mean reward of each step, for a small picture; at most sparkPoints.
	Rewards []float64 `json:"rewards,omitempty"`
	// ToolErrors and Throughput are of the newest step.
	ToolErrors *float64 `json:"tool_errors,omitempty"`
	Throughput *float64 `json:"throughput,omitempty"`
	// Keys holds the configuration by key, for filters and columns.
	Keys map[string]string `json:"keys,omitempty"`
	// Lost means that the run has not ended and Temporal does not know it.
	Lost bool `json:"lost,omitempty"`
	// Problem tells why facts are missing.
	Problem string `json:"problem,omitempty"`
}

// RunList is the table of runs.
type RunList struct {
	Runs []RunRow `json:"runs"`
	// Server reports whether Temporal has answered, so that states are current.
	Server bool `json:"server"`
	// Remark tells why they are not.
	Remark string `json:"remark,omitempty"`
	// Filling counts the rows whose curve and keys are being read: ask again.
	Filling int `json:"filling,omitempty"`
}

const (
	sparkPoints = 60
	// wholeRows bounds the rows, newest first, that have a curve and keys: each needs the
	// records of all steps.
	wholeRows = 200
	// askTime bounds the wait for Temporal where the store suffices for an answer.
	askTime = 2 * time.Second
)

// runTable serves the table of runs and the head of each run.
type runTable struct {
	reader *runReader
	lister *history.Lister
	fill   *filler
	hub    *hub // owns the goroutines of fill
	steer  Steerer
}

func (rt *runTable) listRuns(r *request) (RunList, error) {
	entries, err := rt.lister.List(r.Context())
	if err != nil {
		return RunList{}, err
	}
	slices.SortFunc(entries, func(a, b run.CatalogEntry) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.RunID, b.RunID))
	})
	out := RunList{Runs: make([]RunRow, len(entries))}
	var whole []*RunRow
	for i, e := range entries {
		out.Runs[i] = RunRow{CatalogEntry: e}
		if i < wholeRows && !e.Refused {
			whole = append(whole, &out.Runs[i])
		}
	}
	out.Filling = rt.fillRows(r.Context(), whole)
	rt.addOpen(r.Context(), &out)
	return out, nil
}

// addOpen adds the states that Temporal reports for runs that have not ended.
func (rt *runTable) addOpen(ctx context.Context, list *RunList) {
	if rt.steer == nil {
		list.Remark = "states are the store's alone: this dashboard has no Temporal server"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	open, err := rt.steer.Open(ctx)
	if err != nil {
		list.Remark = "states are the store's alone: Temporal does not answer"
		return
	}
	list.Server = true
	byID := map[string]workflows.OpenRun{}
	for _, o := range open {
		byID[o.RunID] = o
	}
	for i := range list.Runs {
		row := &list.Runs[i]
		o, ok := byID[row.RunID]
		switch {
		case row.Ended():
		case !ok:
			row.Lost = true
		case o.State != "":
			row.State = string(o.State)
		}
		row.Trouble = cmp.Or(o.Trouble, row.Trouble)
		delete(byID, row.RunID)
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		list.Runs = append([]RunRow{{CatalogEntry: run.CatalogEntry{RunID: id, State: string(cmp.Or(byID[id].State, workflows.StatePreparing))}}}, list.Runs...)
	}
}

// readRow reads the facts of a row. An unreadable run spoils only its own row.
func (rt *runTable) readRow(ctx context.Context, id string) rowFacts {
	var f rowFacts
	h, err := history.Open(ctx, rt.reader.store, id)
	if err != nil {
		return rowFacts{problem: err.Error()}
	}
	records, err := rt.reader.records(ctx, h)
	if err != nil {
		f.problem = err.Error()
	}
	for _, rec := range records {
		if v, ok := rec.Metrics[series.Reward]; ok {
			f.rewards = append(f.rewards, finiteOr(v, 0))
		}
	}
	f.rewards = thin(f.rewards, sparkPoints)
	if n := len(records); n > 0 {
		f.toolErrors, f.throughput = known(records[n-1].Metrics, series.ToolErrors), known(records[n-1].Metrics, series.Throughput)
	}
	cfg, err := h.Config(ctx)
	if err != nil {
		f.problem = cmp.Or(f.problem, err.Error())
		return f
	}
	f.keys, err = config.Flat(cfg.Newest())
	if err != nil {
		f.problem = cmp.Or(f.problem, err.Error())
	}
	return f
}

// thin returns at most n values, each the mean of its neighbours.
func thin(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	out := make([]float64, n)
	for i := range out {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		for _, v := range values[from:to] {
			out[i] += v / float64(to-from)
		}
	}
	return out
}

func known(v series.Values, name string) *float64 {
	x, ok := v[name]
	if !ok || finiteOr(x, 0) != x {
		return nil
	}
	return &x
}

// RunView is a run.
type RunView struct {
	run.CatalogEntry
	Dir         string           `json:"dir"`
	Stages      []run.Stage      `json:"plan"`
	SFTSteps    int              `json:"sft_steps"`
	Window      int              `json:"window,omitempty"`
	Summary     *run.Summary     `json:"summary,omitempty"`
	Evaluations []run.Evaluation `json:"evaluations"`
	Amendments  []string         `json:"amendments"`
	// RolloutsPerProblem is the number of trajectories sampled for a problem, GroupSize the
	// number kept.
	RolloutsPerProblem int `json:"rollouts_per_problem"`
	GroupSize          int `json:"group_size"`
	// NotPromised tells which bits another run of the configuration may have otherwise.
	NotPromised string `json:"not_promised,omitempty"`
	// Children are the runs that began with a checkpoint of this one.
	Children []run.CatalogEntry `json:"children"`
	// Alerts are the rules of the watch that are broken after the newest step.
	Alerts []string `json:"alerts"`
	Name   string   `json:"name"`
}

// brokenRules returns the alerts that stand after a step. An unreadable watch is ignored.
func brokenRules(ctx context.Context, h *history.Run, step int) []string {
	out := []string{}
	if state, ok, err := history.RolloutsOf(h).Watch(ctx, step); err == nil && ok {
		for _, a := range state.Standing {
			out = append(out, fmt.Sprintf("step %d: %s", a.Step, a.Text))
		}
	}
	return out
}

func (rt *runTable) showRun(r *request) (RunView, error) {
	ctx := r.Context()
	h, err := rt.reader.open(r)
	if err != nil {
		return RunView{}, err
	}
	out := RunView{Dir: h.Dir(), Stages: h.Plan.Stages, SFTSteps: h.Plan.SFTSteps, Window: h.Plan.Window, Alerts: []string{}, Amendments: []string{}, Children: []run.CatalogEntry{}}
	var cfg config.Run
	var all []run.CatalogEntry
	var sum run.Summary
	var ended bool
	g, inGroup := errgroup.WithContext(ctx) // one round trip to a far store
	g.Go(func() (err error) { cfg, err = h.Config(inGroup); return err })
	g.Go(func() (err error) { out.Evaluations, err = h.Evaluations(inGroup); return err })
	g.Go(func() (err error) { sum, ended, err = h.Summary(inGroup); return err })
	g.Go(func() (err error) { all, err = rt.lister.List(inGroup); return err })
	g.Go(func() (err error) {
		if out.CatalogEntry, err = h.Entry(inGroup); err == nil {
			out.Alerts = brokenRules(inGroup, h, out.Step)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return out, err
	}
	for _, a := range cfg.Amendments {
		out.Amendments = append(out.Amendments, a.Order())
	}
	now := cfg.Newest()
	out.Name, out.RolloutsPerProblem, out.GroupSize, out.NotPromised = cfg.Name, now.RL.RolloutsPerProblem, now.RL.GroupSize, cfg.NotPromised()
	out.Evaluations = orEmpty(out.Evaluations)
	if ended {
		out.Summary = &sum
	}
	for _, e := range all {
		if e.Fork != nil && e.Fork.RunID == h.ID() {
			out.Children = append(out.Children, e)
		}
	}
	return out, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *steering) showStatus(r *request) (workflows.RunStatus, error) {
	if s.steer == nil {
		return workflows.RunStatus{}, problem{http.StatusServiceUnavailable, "this dashboard reads alone: it was started without a Temporal server"}
	}
	if err := history.CheckRunID(r.PathValue("run")); err != nil {
		return workflows.RunStatus{}, problem{http.StatusBadRequest, err.Error()}
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	st, err := s.steer.Status(ctx, r.PathValue("run"))
	if err != nil {
		return st, problem{http.StatusServiceUnavailable, err.Error()}
	}
	return st, nil
}

// ConfigKey is one key of a configuration.
type ConfigKey struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Default is the key's default.
	Default string `json:"default"`
	// Opened is the value at the start of the run, where an amendment has changed it.
	Opened string `json:"opened,omitempty"`
	// Amendable means that a running run may change it.
	Amendable bool `json:"amendable,omitempty"`
}

// ConfigView is a configuration as of a step.
type ConfigView struct {
	Step       int                `json:"step"`
	Keys       []ConfigKey        `json:"keys"`
	Amendments []config.Amendment `json:"amendments"`
}

func (rp *runPages) showConfig(r *request) (ConfigView, error) {
	out := ConfigView{Amendments: []config.Amendment{}}
	h, err := rp.reader.open(r)
	if err != nil {
		return out, err
	}
	cfg, err := h.Config(r.Context())
	if err != nil {
		return out, err
	}
	newest := h.Plan.NumSteps() + 1
	if out.Step, err = r.queryNumber("step", newest); err != nil {
		return out, err
	}
	out.Amendments = append(out.Amendments, cfg.Amendments...)
	opened := cfg
	opened.Amendments = nil
	flat := make([]map[string]string, 3)
	for i, c := range []config.Run{cfg.At(out.Step), opened, config.Default()} {
		c.Amendments = nil
		if flat[i], err = config.Flat(c); err != nil {
			return out, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(flat[0])) {
		k := ConfigKey{Key: key, Value: flat[0][key], Default: flat[2][key], Amendable: config.Amendable(key) == nil}
		if flat[1][key] != k.Value {
			k.Opened = flat[1][key]
		}
		out.Keys = append(out.Keys, k)
	}
	return out, nil
}
