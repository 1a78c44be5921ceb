package history_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/setup"
	"temper/internal/series"
)

// distant is a store that is some time away and counts what is asked of it.
type distant struct {
	blob.Store
	away time.Duration

	mu                sync.Mutex
	requests, listed  int
	atOnce, mostTimes int
}

func (d *distant) ask(ctx context.Context) {
	d.mu.Lock()
	d.requests++
	d.atOnce++
	d.mostTimes = max(d.mostTimes, d.atOnce)
	d.mu.Unlock()
	select {
	case <-time.After(d.away):
	case <-ctx.Done():
	}
	d.mu.Lock()
	d.atOnce--
	d.mu.Unlock()
}

func (d *distant) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	d.ask(ctx)
	return d.Store.Get(ctx, key)
}

func (d *distant) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	d.ask(ctx)
	return d.Store.GetRange(ctx, key, offset, length)
}

func (d *distant) Stat(ctx context.Context, key string) (blob.Info, error) {
	d.ask(ctx)
	return d.Store.Stat(ctx, key)
}

// List asks once for each page of a thousand keys.
func (d *distant) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	infos, err := d.Store.List(ctx, prefix)
	for range 1 + len(infos)/1000 {
		d.ask(ctx)
	}
	d.mu.Lock()
	d.listed += len(infos)
	d.mu.Unlock()
	return infos, err
}

func (d *distant) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	infos, folders, err := d.Store.ListFolder(ctx, folder)
	for range 1 + (len(infos)+len(folders))/1000 {
		d.ask(ctx)
	}
	d.mu.Lock()
	d.listed += len(infos) + len(folders)
	d.mu.Unlock()
	return infos, folders, err
}

// opened is a run that its workflow has opened, of stages with so many steps.
func opened(t testing.TB, store blob.Store, id string, steps ...int) run.Plan {
	t.Helper()
	yaml := "name: " + id + "\nstages:\n"
	for i, n := range steps {
		yaml += fmt.Sprintf("  - {name: s%d, until: {steps: %d}, data: {env: chase, num: 64, levels: [1]}}\n", i+1, n)
	}
	cfg, err := config.Load("test", []byte(yaml), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := setup.Open(t.Context(), store, run.Input{RunID: id, Config: []byte(fmt.Sprintf("%q", text))}, setup.Claim{Owner: "w-" + id, At: at(0)})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// at is a time of the run, in seconds.
func at(s int) time.Time {
	return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(s) * time.Second)
}

// made logs a step, which ends 10 s after the one before.
func made(t testing.TB, store blob.Store, plan run.Plan, step int) {
	t.Helper()
	for _, s := range plan.Stages {
		if step < s.FirstStep || step >= s.FirstStep+s.Steps {
			continue
		}
		err := logStep(t, store, run.StepInput{
			Run: run.Ref{RunID: plan.RunID, Config: plan.Config}, Stage: s.Index, StageName: s.Name, Step: step, NumSteps: plan.NumSteps(),
			Rollouts: series.Rollouts{RewardMean: float64(step) / 1000}, Started: at(10 * (step - 1)), Ended: at(10 * step),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func logged(t testing.TB, store blob.Store, id string, second int, kind, text string) {
	t.Helper()
	if err := run.LogEvent(t.Context(), store, run.Event{Run: run.Ref{RunID: id}, Time: at(second), Kind: kind, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// paperRun fills in what a run of 510 steps has, with a few groups of each step.
func paperRun(t testing.TB, store *memblob.Store, id string, groups int) {
	t.Helper()
	plan := opened(t, store, id, 170, 170, 170)
	l := artifact.Layout{RunID: id}
	for step := 1; step <= plan.NumSteps(); step++ {
		for g := range groups {
			if _, err := blob.PutBytes(t.Context(), store, l.Step(step).Group(fmt.Sprintf("p%03d", g)), nil, blob.Always); err != nil {
				t.Fatal(err)
			}
		}
		if step < plan.NumSteps() { // the last one is being made
			record := run.StepRecord{Step: step, Stage: 1, NumSteps: plan.NumSteps(), Ended: at(step), Metrics: series.Values{series.Reward: 0.5}}
			if _, err := blob.PutJSON(t.Context(), store, l.Step(step).Log(), record, blob.Always); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func logStep(t testing.TB, store blob.Store, in run.StepInput) error {
	t.Helper()
	cfg, err := run.ReadConfig(t.Context(), store, in.Run)
	if err == nil {
		_, err = run.LogStep(t.Context(), store, cfg, in)
	}
	return err
}
