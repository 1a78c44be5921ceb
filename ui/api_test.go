package ui_test

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
	"temper/internal/series"
	"temper/ui"
	"temper/workflows"
)

// TestPagesOfARun reads what every page of a run asks for.
func TestPagesOfARun(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	list := filled(t, s)
	states := map[string]string{}
	for _, r := range list.Runs {
		states[r.RunID] = r.State
		if len(r.Rewards) != r.Step || r.Keys["rl.group_size"] != "4" {
			t.Errorf("run %s of %d steps has %d rewards and rl.group_size %q", r.RunID, r.Step, len(r.Rewards), r.Keys["rl.group_size"])
		}
	}
	if diff := cmp.Diff(map[string]string{"demo": run.StateDone, "half": string(workflows.StatePaused)}, states); diff != "" || !list.Server {
		t.Errorf("states, want -, got +\n%s", diff)
	}
	view := read[ui.RunView](t, s, "/runs/demo")
	if view.Summary == nil || len(view.Stages) != 2 || view.Step != 6 || view.GroupSize != 4 || len(view.Evaluations) == 0 {
		t.Errorf("run: %+v", view)
	}
	curves := read[ui.SeriesView](t, s, "/runs/demo/series")
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6}, curves.Steps); diff != "" || len(curves.Values) < 40 || len(curves.Values[series.Reward]) != 6 {
		t.Errorf("%d series, steps want -, got +\n%s", len(curves.Values), diff)
	}
	if few := read[ui.SeriesView](t, s, "/runs/demo/series?keys="+series.Reward+"&from=2&to=3"); len(few.Values) != 1 || len(few.Steps) != 2 {
		t.Errorf("a part of the series: %+v", few)
	}
	if c := read[ui.ConfigView](t, s, "/runs/demo/config?step=1"); len(c.Keys) < 50 || c.Step != 1 {
		t.Errorf("configuration with %d keys as of step %d", len(c.Keys), c.Step)
	}
	if c := read[ui.CheckpointsView](t, s, "/runs/demo/checkpoints"); len(c.Checkpoints) == 0 || c.Checkpoints[0].Kept == "" || len(c.Policies) == 0 {
		t.Errorf("checkpoints: %+v", c)
	}
	line := read[ui.TimelineView](t, s, "/runs/demo/timeline")
	kinds := map[string]int{}
	for _, sp := range line.Spans {
		kinds[sp.Kind]++
	}
	if kinds["stage"] != 2 || kinds["evaluation"] == 0 || kinds["sft"] != 1 || len(line.Marks) == 0 {
		t.Errorf("time line: %v, %d marks", kinds, len(line.Marks))
	}
	evals := read[[]ui.EvalRow](t, s, "/runs/demo/evals")
	rows := read[ui.Columns](t, s, "/runs/demo/evals/"+evals[0].Name)
	if rows.Rows == 0 {
		t.Errorf("evaluation %s has no trajectories", evals[0].Name)
	}
}

// TestStepGroupTrajectory: the index, the group with its reasons and the trajectory say
// the same.
func TestStepGroupTrajectory(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	g := firstGroup(t, h, 1)
	step := read[ui.StepView](t, s, "/runs/demo/steps/1")
	rows := read[ui.Columns](t, s, "/runs/demo/steps/1/trajectories")
	if len(step.Groups) != 3 || rows.Rows != 18 || rows.Source != "index" {
		t.Errorf("%d groups, %d rows of the %s", len(step.Groups), rows.Rows, rows.Source)
	}
	group := read[ui.GroupView](t, s, "/runs/demo/steps/1/"+g.ProblemID)
	fates := map[string]int{}
	for _, r := range group.Rows {
		fates[r.Fate]++
		if r.Why == "" || strings.Contains(r.Why, "not recorded") {
			t.Errorf("rollout %d: %q", r.Rollout, r.Why)
		}
		one := read[ui.TrajectoryView](t, s, fmt.Sprintf("/runs/demo/steps/1/%s/%d", g.ProblemID, r.Rollout))
		if one.Why != r.Why || one.Fate != r.Fate || len(one.TurnViews) != r.Turns || one.Problem.Prompt == "" {
			t.Errorf("rollout %d as a trajectory: %+v", r.Rollout, one)
		}
		tokens := read[ui.TokensView](t, s, fmt.Sprintf("/runs/demo/steps/1/%s/%d/tokens", g.ProblemID, r.Rollout))
		if strings.Join(tokens.Texts[:tokens.PromptTokens], "") != one.Prompt || len(tokens.IDs) != r.PromptTokens+r.ResponseTokens {
			t.Errorf("rollout %d: the tokens of the prompt are not the prompt", r.Rollout)
		}
	}
	if fates[record.FateKept] != g.NumSamples || group.Problem.Answer == "" || group.Why == "" {
		t.Errorf("the batch has %d of the group, and fates are %v", g.NumSamples, fates)
	}
}

// TestOldStep: of a step without an index, the fates are those of the stored samples, and
// where these are gone, too, the page says so.
func TestOldStep(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	g := firstGroup(t, h, 1)
	s := newSite(t, h.Store, nil)
	want := read[ui.GroupView](t, s, "/runs/demo/steps/1/"+g.ProblemID)
	remove := func(key string) {
		t.Helper()
		if err := h.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	remove(h.Layout.Step(1).Index())
	got := read[ui.GroupView](t, s, "/runs/demo/steps/1/"+g.ProblemID)
	if diff := cmp.Diff(want.Rows, got.Rows); diff != "" || got.Source != "trajectories" {
		t.Errorf("from the %s: with index -, without +\n%s", got.Source, diff)
	}
	if rows := read[ui.Columns](t, s, "/runs/demo/steps/1/trajectories"); rows.Rows != 18 || rows.Remark == "" {
		t.Errorf("%d rows, remark %q", rows.Rows, rows.Remark)
	}
	remove(h.Layout.Step(1).Samples(g.ProblemID))
	got = read[ui.GroupView](t, s, "/runs/demo/steps/1/"+g.ProblemID)
	for _, r := range got.Rows {
		if r.Fate == "" != strings.Contains(r.Why, "not recorded") || r.Fate == record.FateKept {
			t.Errorf("rollout %d without samples: fate %q, %q", r.Rollout, r.Fate, r.Why)
		}
	}
	if !strings.Contains(got.Why, "not recorded") {
		t.Errorf("group without samples: %q", got.Why)
	}
	for _, id := range h.Selected(t, 1, 1) {
		remove(h.Layout.Step(1).Group(id))
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/steps/1/"+g.ProblemID+"/0", ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "keep_trajectories") {
		t.Errorf("a deleted trajectory: %s %s", resp.Status, body)
	}
}

// TestSentences: each fate has its reason, in words with numbers.
func TestSentences(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	seen := map[string]string{}
	for step := 1; step <= 6; step++ {
		for _, g := range read[ui.StepView](t, s, fmt.Sprintf("/runs/demo/steps/%d", step)).Groups {
			for _, r := range read[ui.GroupView](t, s, fmt.Sprintf("/runs/demo/steps/%d/%s", step, g.Problem)).Rows {
				seen[fmt.Sprintf("%s %v", r.Fate, r.Reward > 0)] = r.Why
			}
		}
	}
	for key, want := range map[string][]string{
		"kept true": {"Correct, kept:", "p_err", "drawn", "Advantage +"}, "dropped true": {"Correct, dropped:", "weight", "not drawn"},
		"kept false": {"Wrong, kept:", "with the same chance"},
	} {
		for _, part := range want {
			if !strings.Contains(seen[key], part) {
				t.Errorf("%s: %q lacks %q", key, seen[key], part)
			}
		}
	}
}

// TestMissing: what is not there is a line that says so.
func TestMissing(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	g := firstGroup(t, h, 1)
	for path, want := range map[string]string{
		"/runs/none": "no run", "/runs/..%2f..%2fetc": "run id", "/runs/demo/steps/99": "has no step 99", "/runs/demo/steps/x": "want a number", "/runs/demo/steps/1/zz": "no problem",
		"/runs/demo/steps/1/..%2f..%2fplan.json/0": "without '/'", "/runs/demo/steps/1/" + g.ProblemID + "/99": "no rollout 99", "/runs/demo/evals/9-x-9": "no evaluation", "/nothing": "no such path",
		"/runs/demo/series?points=-1": "want a number",
	} {
		resp, body := s.ask(t, http.MethodGet, "/api/v1"+path, "")
		if resp.StatusCode < 400 || resp.StatusCode > 404 || !strings.Contains(body, want) || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %s, want %q", path, resp.Status, body, want)
		}
	}
}

// TestDamage: a run that cannot be read spoils neither the list nor other runs.
func TestDamage(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	for key, data := range map[string]string{"runs/broken/plan.json": "{", "runs/empty/x": "", "runs/newer/plan.json": `{"run_id":"newer","stages":"of another schema"}`, h.Layout.Step(1).Index(): "temper index 9\n"} {
		if _, err := blob.PutBytes(t.Context(), h.Store, key, []byte(data), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, h.Store, nil)
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"demo"`) {
		t.Errorf("list: %s %s", resp.Status, body)
	}
	if resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/steps/1/trajectories", ""); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "damaged") {
		t.Errorf("damaged index: %s %s", resp.Status, body)
	}
	if resp, _ := s.ask(t, http.MethodGet, "/api/v1/runs/broken", ""); resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("damaged plan: %s", resp.Status)
	}
}

// TestExports: the CSV has a line a step, and the event file the records that TensorBoard
// reads.
func TestExports(t *testing.T) {
	h := playedRun(t)
	s := newSite(t, h.Store, nil)
	_, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/export/csv", "")
	lines, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil || len(lines) != 7 || len(lines[0]) < 40 {
		t.Errorf("CSV of %d lines: %v", len(lines), err)
	}
	resp, body := s.ask(t, http.MethodGet, "/api/v1/runs/demo/export/tfevents", "")
	if !strings.Contains(resp.Header.Get("Content-Disposition"), "events.out.tfevents.") || !strings.Contains(body, "brain.Event:2") || !strings.Contains(body, series.Reward) {
		t.Errorf("event file: %v", resp.Header)
	}
	in := bufio.NewReader(strings.NewReader(body))
	if num := countRecords(t, in); num != 7 {
		t.Errorf("%d records, want one of the version and six of steps", num)
	}
}
