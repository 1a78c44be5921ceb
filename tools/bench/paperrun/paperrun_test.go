package paperrun_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/tools/bench/paperrun"
)

func small(store blob.Store) paperrun.Config {
	return paperrun.Config{Store: store, RunID: "paper", Steps: 6, Problems: 5, Rollouts: 8, TextSteps: 2, MeanTokens: 300, Others: 2, Seed: 3}
}

// TestReadersTakeIt: what was written reads as a run does, the same each time, and its texts
// say what its index says.
func TestReadersTakeIt(t *testing.T) {
	store, again := memblob.New(), memblob.New()
	for _, s := range []blob.Store{store, again} {
		if err := paperrun.Make(t.Context(), small(s)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	entries, err := history.List(ctx, store)
	if err != nil || len(entries) != 3 || entries[0].State != "done" || entries[0].Step != 6 {
		t.Fatalf("list: %v, %+v", err, entries)
	}
	h, err := history.Open(ctx, store, "paper")
	if err != nil {
		t.Fatal(err)
	}
	records, err := h.Records(ctx)
	if err != nil || len(records) != 6 || len(records[0].Metrics) < 60 {
		t.Fatalf("records: %v, %d", err, len(records))
	}
	rows, ok, err := history.RolloutsOf(h).Index(ctx, 6)
	if err != nil || !ok || len(rows) != 40 {
		t.Fatalf("index: %v, %v, %d rows", err, ok, len(rows))
	}
	batch, _, err := history.RolloutsOf(h).Batch(ctx, 6)
	if err != nil || len(batch.Groups) != 5 {
		t.Fatalf("batch: %v, %d groups", err, len(batch.Groups))
	}
	ts, err := h.Group(ctx, 6, rows[0].Problem)
	if err != nil || len(ts) != 8 {
		t.Fatalf("group: %v, %d", err, len(ts))
	}
	for i := range ts {
		calls, failed := ts[i].ToolCounts()
		if r := rows[i]; calls != r.Calls || failed != r.FailedCalls || ts[i].Reward != r.Reward || len(ts[i].Turns) != r.Turns || ts[i].Text == "" {
			t.Errorf("rollout %d: %d calls, %d failed, %d turns; its row: %+v", i, calls, failed, len(ts[i].Turns), r)
		}
	}
	if _, err := h.Group(ctx, 4, rows[0].Problem); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("texts of a step before the newest two: %v", err)
	}
	infos, err := store.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		a, err := blob.ReadKey(ctx, store, info.Key)
		b, err2 := blob.ReadKey(ctx, again, info.Key)
		if errors.Join(err, err2) != nil || string(a) != string(b) {
			t.Errorf("%s differs (%v, %v)", info.Key, err, err2)
		}
	}
	if err := paperrun.Make(ctx, small(store)); !errors.Is(err, blob.ErrExists) {
		t.Errorf("a run that is there: %v", err)
	}
}

func TestWrongSizes(t *testing.T) {
	for want, change := range map[string]func(*paperrun.Config){
		"at least 3 steps": func(c *paperrun.Config) { c.Steps = 2 }, "1 problem": func(c *paperrun.Config) { c.Problems = 0 },
		"4 rollouts": func(c *paperrun.Config) { c.Rollouts = 3 }, "64 tokens": func(c *paperrun.Config) { c.MeanTokens = 10 },
		"texts of 7 steps": func(c *paperrun.Config) { c.TextSteps = 7 }, "run id": func(c *paperrun.Config) { c.RunID = "../x" },
	} {
		c := small(memblob.New())
		change(&c)
		if err := paperrun.Make(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
