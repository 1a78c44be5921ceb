package sampling_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/sandbox"
)

// TestEvaluationNumbers against the trajectories that it stores: greedy ones
// first, then sampled ones.
func TestEvaluationNumbers(t *testing.T) {
	h := runtest.New(t, nil)
	problems := h.Problems(t, h.Layout.Stage(1).HeldOut())
	r, engine := h.NewSampling(t)
	engine.Knows = func(prompt string, req inference.Request) bool {
		return req.Temperature == 0 && prompt != problems[0].Prompt // greedy: all but one, sampled: none
	}
	in := sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "after", Policy: runtest.PolicyRef(3)}
	got, err := r.Evaluate(t.Context(), in, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	want := run.Evaluation{
		Stage: 1, Label: "after", PolicyVersion: 3, NumProblems: 4, Accuracy: 0.75,
		TrajectoriesPath: h.Layout.Eval(1, "after", 3).Trajectories(),
	}
	trajectories := runtest.ReadLines[rl.Trajectory](t, h.Store, want.TrajectoriesPath)
	if len(trajectories) != 8 {
		t.Fatalf("%d trajectories", len(trajectories))
	}
	var calls, failed [2]float64
	for i, tr := range trajectories {
		if tr.ProblemID != problems[i%4].ID {
			t.Errorf("trajectory %d is of %s", i, tr.ProblemID)
		}
		c, f := tr.ToolCounts()
		calls[i/4] += float64(c)
		failed[i/4] += float64(f)
		if i < 4 {
			want.MeanTokens += float64(tr.ResponseTokens()) / 4
			want.MeanTurns += float64(len(tr.Turns)) / 4
		}
	}
	want.GreedyErrorRate, want.ToolErrorRate = failed[0]/calls[0], failed[1]/calls[1]
	want.MeanCalls = calls[0] / 4
	want.Record = blob.RefOf(want.TrajectoriesPath, []byte(runtest.Dump(t, h.Store)[want.TrajectoriesPath]))
	if diff := cmp.Diff(got, want); diff != "" || want.ToolErrorRate == 0 || want.ToolErrorRate == want.GreedyErrorRate {
		t.Errorf("got -, want +\n%s", diff)
	}
	before := len(engine.Requests())
	again, err := r.Evaluate(t.Context(), in, r.NewProgress())
	if diff := cmp.Diff(again, got); err != nil || diff != "" || len(engine.Requests()) != before {
		t.Errorf("a repeated evaluation samples again or differs (%v)\n%s", err, diff)
	}
}

// TestEvaluationDuringAnOutage is an error to be retried, never an accuracy of 0;
// single losses are left out of the means.
func TestEvaluationDuringAnOutage(t *testing.T) {
	h := runtest.New(t, nil)
	first := h.Problems(t, h.Layout.Stage(1).HeldOut())[0].ID
	evaluate := func(t *testing.T, fails func(sandbox.Request) bool) (out run.Evaluation, err error) {
		r, engine := h.NewSampling(t)
		engine.Knows = func(string, inference.Request) bool { return true }
		r.Executor = down(fails)
		synctest.Test(t, func(*testing.T) {
			out, err = r.Evaluate(context.Background(), sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "after", Policy: runtest.PolicyRef(1)}, r.NewProgress())
		})
		return out, err
	}
	t.Run("down", func(t *testing.T) {
		if out, err := evaluate(t, func(sandbox.Request) bool { return true }); err == nil {
			t.Errorf("result %+v", out)
		}
		for key := range runtest.Dump(t, h.Store) {
			if strings.Contains(key, "/evals/") {
				t.Errorf("stored %s", key)
			}
		}
	})
	t.Run("in part", func(t *testing.T) {
		out, err := evaluate(t, func(req sandbox.Request) bool { return strings.Contains(req.ID, first) })
		if err != nil || out.Accuracy != 1 || out.InfraErrors != 2 || out.NumProblems != 4 {
			t.Errorf("%+v (%v), want accuracy 1 of what was scored", out, err)
		}
	})
}

// TestFilterNumbers: solved problems go, as long as a step can runtest.Still be filled.
func TestFilterNumbers(t *testing.T) {
	for solved, removed := range map[int]int{0: 0, 2: 2, 4: 3, 6: 6} {
		h := runtest.New(t, nil)
		problems := h.Problems(t, h.Layout.Stage(2).Train())
		r, engine := h.NewSampling(t)
		engine.Knows = func(prompt string, req inference.Request) bool {
			return slices.ContainsFunc(problems[:solved], func(p rl.Problem) bool { return p.Prompt == prompt })
		}
		in := sampling.FilterInput{Run: h.Ref, Stage: 2, Policy: runtest.PolicyRef(4)}
		got, err := r.Filter(t.Context(), in, r.NewProgress())
		want := run.FilterResult{Problems: 6, Removed: removed, Left: 6 - removed}
		if diff := cmp.Diff(got, want); err != nil || diff != "" {
			t.Errorf("%d solved (%v): got -, want +\n%s", solved, err, diff)
			continue
		}
		again, err := r.Filter(t.Context(), sampling.FilterInput{Run: h.Ref, Stage: 2, Policy: runtest.PolicyRef(5)}, r.NewProgress())
		if diff := cmp.Diff(again, got); err != nil || diff != "" {
			t.Errorf("the filter of a stage is made once (%v): got -, want +\n%s", err, diff)
		}
		if removed == 6 {
			continue // the stage makes no step
		}
		for step := 5; step <= 8; step++ {
			for _, id := range h.Selected(t, 2, step) {
				if slices.ContainsFunc(problems[:removed], func(p rl.Problem) bool { return p.ID == id }) {
					t.Errorf("step %d trains on %s, which was removed", step, id)
				}
			}
		}
	}
}

// TestFilterIgnoresLostRollouts: a loss is no evidence that a problem is solved.
func TestFilterIgnoresLostRollouts(t *testing.T) {
	h := runtest.New(t, nil)
	lost := h.Problems(t, h.Layout.Stage(2).Train())[:4]
	r, engine := h.NewSampling(t)
	engine.Knows = func(string, inference.Request) bool { return true }
	r.Executor = down(func(req sandbox.Request) bool {
		return slices.ContainsFunc(lost, func(p rl.Problem) bool { return strings.Contains(req.ID, p.ID+"/1/") })
	})
	synctest.Test(t, func(t *testing.T) {
		got, err := r.Filter(context.Background(), sampling.FilterInput{Run: h.Ref, Stage: 2, Policy: runtest.PolicyRef(4)}, r.NewProgress())
		if err != nil || got.Removed != 2 {
			t.Errorf("%+v (%v), want the 2 problems removed that lost nothing", got, err)
		}
	})
}
