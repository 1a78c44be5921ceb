package query_test

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/query"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/series"
)

func ask(t *testing.T, store blob.Store, text string) query.Result {
	t.Helper()
	got, err := query.Run(t.Context(), store, text, query.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return got
}

// TestTablesSayWhatTheRunLeft: every table answers, and sums over it are those of the run.
func TestTablesSayWhatTheRunLeft(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 6, true)
	for _, table := range query.Tables() {
		got := ask(t, h.Store, "SELECT * FROM "+table.Name)
		var names []string
		for _, c := range table.Columns {
			names = append(names, c.Name)
		}
		if diff := cmp.Diff(names, got.Columns); diff != "" || len(got.Rows) == 0 {
			t.Errorf("%s: %d rows, columns want -, got +\n%s", table.Name, len(got.Rows), diff)
		}
	}
	var indexed, kept int64
	for step := 1; step <= 6; step++ {
		var batch struct {
			Stats struct{ Trajectories, Kept int64 }
		}
		if err := blob.ReadJSON(t.Context(), h.Store, h.Layout.Step(step).BatchStats(), &batch); err != nil {
			t.Fatal(err)
		}
		indexed += batch.Stats.Trajectories
		kept += batch.Stats.Kept
	}
	got := ask(t, h.Store, "SELECT count(*), sum(fate = 'kept') FROM trajectories WHERE run = 'demo'")
	if diff := cmp.Diff([][]any{{indexed, kept}}, got.Rows); diff != "" {
		t.Errorf("trajectories: want -, got +\n%s", diff)
	}
	got = ask(t, h.Store, "SELECT s.step FROM steps s JOIN series v ON v.run = s.run AND v.step = s.step AND v.key = 'critic/rewards/mean' WHERE s.step > 2 AND s.step <= 4 AND v.value = s.reward ORDER BY s.step DESC")
	if diff := cmp.Diff([][]any{{int64(4)}, {int64(3)}}, got.Rows); diff != "" {
		t.Errorf("joined: want -, got +\n%s", diff)
	}
}

// TestColumnsOfOneName: each value of a row has a name of its own.
func TestColumnsOfOneName(t *testing.T) {
	got := ask(t, memblob.New(), "SELECT 1 AS a, 2 AS b, 3 AS a, 4 AS a_2, 5 AS a")
	if diff := cmp.Diff([]string{"a", "b", "a_3", "a_2", "a_4"}, got.Columns); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestNumbersThatAreNone: NaN is NULL, which no comparison finds, and infinities are compared as
// numbers.
func TestNumbersThatAreNone(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	for step, v := range map[int]float64{1: math.NaN(), 2: math.Inf(1), 3: -2} {
		key := h.Layout.Step(step).Log()
		var rec run.StepRecord
		if err := blob.ReadJSON(t.Context(), h.Store, key, &rec); err != nil {
			t.Fatal(err)
		}
		rec.Metrics[series.GradNorm] = v
		if _, err := blob.PutJSON(t.Context(), h.Store, key, rec, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string][][]any{
		"SELECT step, grad_norm FROM steps ORDER BY step":                                 {{int64(1), nil}, {int64(2), "+Inf"}, {int64(3), -2.0}},
		"SELECT step FROM steps WHERE grad_norm > 1e300":                                  {{int64(2)}},
		"SELECT step FROM steps WHERE grad_norm < 1e300":                                  {{int64(3)}},
		"SELECT max(grad_norm), min(grad_norm), count(grad_norm) FROM steps":              {{"+Inf", -2.0, int64(2)}},
		"SELECT step FROM series WHERE key = '" + series.GradNorm + "' AND value IS NULL": {{int64(1)}},
	} {
		if diff := cmp.Diff(want, ask(t, h.Store, text).Rows); diff != "" {
			t.Errorf("%s: want -, got +\n%s", text, diff)
		}
	}
}

// TestSeriesThatAStepHasNot: a step without a correct trajectory has no errors in correct ones.
func TestSeriesThatAStepHasNot(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	key := h.Layout.Step(2).Log()
	var rec run.StepRecord
	if err := blob.ReadJSON(t.Context(), h.Store, key, &rec); err != nil {
		t.Fatal(err)
	}
	rec.Metrics[series.Reward], rec.Metrics[series.CorrectErrors], rec.Metrics[series.KeptErrors] = 0, 0, 0
	if _, err := blob.PutJSON(t.Context(), h.Store, key, rec, blob.Always); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{series.CorrectErrors, series.KeptErrors} {
		got := ask(t, h.Store, "SELECT step FROM series WHERE key = '"+name+"' ORDER BY step")
		if diff := cmp.Diff([][]any{{int64(1)}, {int64(3)}}, got.Rows); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
}

// TestQueriesReadWhatTheyNeed: a step is found by its number.
func TestQueriesReadWhatTheyNeed(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 6, true)
	c := &counted{Store: h.Store}
	if got := ask(t, c, "SELECT problem FROM trajectories WHERE run = 'demo' AND step = 5"); len(got.Rows) == 0 {
		t.Error("the step has no rows")
	}
	for _, key := range c.read {
		if strings.HasPrefix(key, h.Layout.Steps()) && key != h.Layout.Step(5).Index() {
			t.Errorf("read %s", key)
		}
	}
	if got := ask(t, c, "SELECT * FROM steps WHERE run = '../x'"); len(got.Rows) > 0 {
		t.Errorf("rows %v of a run with no possible id", got.Rows)
	}
}

// TestBadQueriesEndInOneLine, whatever they try.
func TestBadQueriesEndInOneLine(t *testing.T) {
	store := memblob.New()
	limits := query.Limits{Time: time.Second, Rows: 10, Bytes: 1 << 20, Memory: 32 << 20}
	file := filepath.Join(t.TempDir(), "x.db")
	for text, want := range map[string]string{
		"":                                      "empty",
		"-- nothing":                            "empty",
		"DROP TABLE runs":                       "begins with",
		"PRAGMA query_only = 0":                 "begins with",
		"ATTACH '" + file + "' AS x":            "begins with",
		"SELECT nobody FROM runs":               "no such column",
		"SELECT * FROM nobody":                  "no such table",
		"SELECT":                                "incomplete input",
		"SELECT 1 \x00":                         "NUL",
		"SELECT load_extension('x')":            "SQL:",
		"SELECT 1; ATTACH '" + file + "' AS x":  "more follows",
		"SELECT 1; VACUUM INTO '" + file + "'":  "more follows",
		"SELECT 1; DROP TABLE runs":             "more follows",
		"SELECT 1; PRAGMA hard_heap_limit = 1":  "more follows",
		"SELECT ';' /* ; */ -- ;\n; SELECT 2":   "more follows",
		"SELECT 1;;":                            "more follows",
		"SELECT randomblob(100000000)":          "too big",
		"SELECT '" + strings.Repeat("x", 1<<17): "at most",
		"SELECT 1" + strings.Repeat("+1", 500):  "SQL:",
		"WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x":                    "stopped after",
		"WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT 1 UNION ALL SELECT count(*) FROM x": "stopped after",
		"SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' LIKE '" + strings.Repeat("%a", 600) + "b'":         "SQL:",
	} {
		began := time.Now()
		got, err := query.Run(t.Context(), store, text, limits)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || fault.Of(err) != fault.InvalidConfig {
			t.Errorf("%.80q: %v (%d rows), want an error with %q", text, err, len(got.Rows), want)
		}
		if took := time.Since(began); took > 10*limits.Time {
			t.Errorf("%.80q took %v", text, took)
		}
	}
	for _, text := range []string{"SELECT ';' AS \"a;b\" /* ; */ -- ; and so on", "SELECT 1 ; -- no more", "SELECT 1;\n", "SELECT [runs].run FROM [runs]; /* none */"} {
		if _, err := query.Run(t.Context(), store, text, limits); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a query wrote a file")
	}
	got, err := query.Run(t.Context(), store, "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n FROM x", limits)
	if err != nil || !got.Truncated || len(got.Rows) != limits.Rows {
		t.Errorf("%d rows, truncated %v (%v)", len(got.Rows), got.Truncated, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := query.Run(ctx, store, "SELECT 1", limits); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestMemoryOfAQueryIsBounded, by what SQLite itself counts.
func TestMemoryOfAQueryIsBounded(t *testing.T) {
	limits := query.Limits{Time: 20 * time.Second, Rows: 10, Bytes: 1 << 20, Memory: 4 << 20}
	text := "WITH RECURSIVE x(n, s) AS (SELECT 1, printf('%0100000d', 1) UNION ALL SELECT n + 1, printf('%0100000d', n) FROM x LIMIT 2000) SELECT n FROM x ORDER BY s, n"
	if _, err := query.Run(t.Context(), memblob.New(), text, limits); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
		t.Errorf("error %v", err)
	}
}

// TestDamageHidesNothingElse: a damaged run leaves the others, and is named where it is
// asked for; a store that does not answer is no empty table.
func TestDamageHidesNothingElse(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	runtest.Put(t, h.Store, artifact.Layout{RunID: "half"}.Plan(), `{"run_id": "ha`)
	runtest.Put(t, h.Store, h.Layout.Step(1).Index(), "temper index 1\nx")
	if got := ask(t, h.Store, "SELECT DISTINCT step FROM trajectories"); len(got.Rows) != 1 || got.Rows[0][0] != int64(2) {
		t.Errorf("steps %v", got.Rows)
	}
	if _, err := query.Run(t.Context(), h.Store, "SELECT * FROM steps WHERE run = 'half'", query.DefaultLimits()); err == nil || !strings.Contains(err.Error(), "half") {
		t.Errorf("the damaged run: %v", err)
	}
	if _, err := query.Run(t.Context(), h.Store, "SELECT * FROM trajectories WHERE run = 'demo' AND step = 1", query.DefaultLimits()); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("the damaged step: %v", err)
	}
	if _, err := query.Run(t.Context(), away{h.Store}, "SELECT * FROM steps", query.DefaultLimits()); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("a store that is away: %v", err)
	}
}

// counted notes what is read.
type counted struct {
	blob.Store
	read []string
}

func (c *counted) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	c.read = append(c.read, key)
	return c.Store.Get(ctx, key)
}

// away is a store that does not answer.
type away struct{ blob.Store }

func (away) ListFolder(context.Context, string) ([]blob.Info, []string, error) {
	return nil, nil, blob.ErrUnavailable
}
