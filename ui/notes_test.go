package ui_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"temper/internal/blob"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
	"temper/ui"
)

// TestNotes: tags and a note are stored with the token alone, show in the list, and stay
// when the catalog is made anew. They are checked.
func TestNotes(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, true)
	s := newSite(t, h.Store, func(c *ui.Config) {
		c.PutNotes = func(ctx context.Context, runID string, n run.Notes) error {
			return run.PutNotes(ctx, h.Store, runID, n)
		}
	})
	path, body := "/api/v1/runs/demo/notes", `{"tags": ["good", "v1.2"], "text": "<script>looks fine</script>", "time": "1970-01-01T00:00:00Z"}`
	if resp, text := s.ask(t, http.MethodPut, path, body); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s %s", resp.Status, text)
	}
	if resp, text := s.ask(t, http.MethodPut, path, body, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, text)
	}
	for _, bad := range []string{`{"tags": ["a b"]}`, `{"tags": [""]}`, `{"tags": ["` + strings.Repeat("x", 41) + `"]}`, `{"text": "` + strings.Repeat("x", 20_001) + `"}`, `{"by": "` + strings.Repeat("x", 201) + `"}`} {
		if resp, text := s.ask(t, http.MethodPut, path, bad, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusConflict {
			t.Errorf("%.60s: %s %s", bad, resp.Status, text)
		}
	}
	if n := read[run.Notes](t, s, "/runs/demo/notes"); n.Text != "<script>looks fine</script>" || n.By != "ui/browser" || n.Time.Unix() == 0 {
		t.Errorf("notes: %+v", n)
	}
	want := []string{"good", "v1.2"}
	for _, again := range []bool{false, true} {
		if again {
			if _, err := history.Index(t.Context(), h.Store); err != nil {
				t.Fatal(err)
			}
		}
		list := read[ui.RunList](t, s, "/runs")
		at := slices.IndexFunc(list.Runs, func(r ui.RunRow) bool { return r.RunID == h.Ref.RunID })
		if at < 0 {
			t.Fatalf("the list has no %s: %+v", h.Ref.RunID, list.Runs)
		}
		if diff := cmp.Diff(want, list.Runs[at].Tags); diff != "" {
			t.Errorf("catalog made anew: %v: want -, got +\n%s", again, diff)
		}
	}
	if resp, _ := newSite(t, h.Store, nil).ask(t, http.MethodPut, path, body, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a dashboard that only reads answers %s", resp.Status)
	}
}

// TestPagesArePointed: a program shows the open pages something, and no address of another
// site.
func TestPagesArePointed(t *testing.T) {
	s := newSite(t, playedRun(t).Store, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/events?run=half", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: reset") { // now the page is listed
	}
	for _, bad := range []string{"https://elsewhere", "//elsewhere", `/\\elsewhere`, "runs"} {
		if resp, text := s.ask(t, http.MethodPost, "/api/v1/view", `{"path": "`+bad+`"}`, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", bad, resp.Status, text)
		}
	}
	resp, text := s.ask(t, http.MethodPost, "/api/v1/view", `{"path": "/runs/demo/steps/2"}`, "Authorization", "Bearer "+token)
	if resp.StatusCode != http.StatusOK || text != `{"pages":1}` {
		t.Fatalf("%s %s", resp.Status, text)
	}
	for lines.Scan() && lines.Text() != "event: view" {
	}
	if !lines.Scan() || lines.Text() != `data: {"path":"/runs/demo/steps/2"}` {
		t.Errorf("the page is told %q (%v)", lines.Text(), lines.Err())
	}
}

// TestProblemInOtherSteps: each step that sampled a problem has its count.
func TestProblemInOtherSteps(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	g := firstGroup(t, h, 1)
	got := read[ui.HistoryView](t, s, "/runs/demo/problems/"+g.ProblemID)
	var want []ui.ProblemStep
	for step := 1; step <= 6; step++ {
		for _, one := range read[ui.StepView](t, s, fmt.Sprintf("/runs/demo/steps/%d", step)).Groups {
			if one.Problem == g.ProblemID {
				want = append(want, ui.ProblemStep{Step: step, Num: one.Num, Correct: one.Correct, Kept: one.Kept})
			}
		}
	}
	if diff := cmp.Diff(want, got.Steps); diff != "" || got.Last != 6 || got.Left != 0 || len(want) == 0 {
		t.Errorf("want -, got +\n%s%+v", diff, got)
	}
}

// TestDownloads: Parquet has every stored trajectory, and the usage counts objects.
func TestDownloads(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	_, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/export/parquet?from=1&to=2", "")
	rows, err := parquet.Read[export.Rollout](bytes.NewReader([]byte(body)), int64(len(body)))
	if err != nil || len(rows) != 36 {
		t.Errorf("%d rows (%v)", len(rows), err)
	}
	if u := read[history.Usage](t, s, "/runs/demo/du"); u.Steps != 6 || len(u.Kinds) < 5 || u.Kinds[0].Objects == 0 {
		t.Errorf("usage: %+v", u)
	}
}

// TestTrainersTokens: where a run records what the trainer says of tokens, they stand
// beside the engine's; where it does not, the page says so.
func TestTrainersTokens(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	s := newSite(t, h.Store, nil)
	g := firstGroup(t, h, 1)
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Step(1).Samples(g.ProblemID))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := rl.ReadSamples(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	path := "/runs/demo/steps/1/" + g.ProblemID + "/" + strconv.Itoa(samples[0].Rollout) + "/tokens"
	if v := read[ui.TokensView](t, s, path); len(v.Missing) != 2 || v.Entropies != nil {
		t.Errorf("not recorded: %v", v.Missing)
	}
	stats := record.TokenStats{Rollout: samples[0].Rollout}
	for i, sampled := range samples[0].LossMask {
		if sampled {
			stats.Differences, stats.Entropies = append(stats.Differences, 0.25), append(stats.Entropies, float64(i))
		}
	}
	encoded, err := record.EncodeTokens([]record.TokenStats{stats})
	if err != nil {
		t.Fatal(err)
	}
	runtest.Put(t, h.Store, h.Layout.Step(1).Tokens(g.ProblemID), string(encoded))
	v := read[ui.TokensView](t, s, path)
	if len(v.Missing) != 0 || len(v.Entropies) != len(v.IDs) {
		t.Fatalf("recorded, but missing are %v, %d of %d", v.Missing, len(v.Entropies), len(v.IDs))
	}
	for i, sampled := range samples[0].LossMask {
		switch {
		case !sampled && v.Entropies[i] != nil:
			t.Errorf("token %d was not sampled and has an entropy", i)
		case sampled && (*v.Entropies[i] != ui.Number(i) || *v.TrainerLogprobs[i]-*v.Logprobs[i] < 0.2499):
			t.Errorf("token %d: entropy %v, trainer %v, engine %v", i, *v.Entropies[i], *v.TrainerLogprobs[i], *v.Logprobs[i])
		}
	}
}
