package sampling_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"temper/internal/grpo"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/internal/series"
)

// selected deals out the problems of a step of the first stage, in a round.
func selected(t *testing.T, h *runtest.Run, step, round, n int) []string {
	t.Helper()
	var s sampling.Selector // a worker of its own each time
	ids, err := s.Select(t.Context(), h.Store, sampling.SelectInput{Run: h.Ref, Stage: 1, Step: step, StageStep: step, Round: round, Num: n})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestRefillGoesOn: each pass over the data has each problem once, whatever the rounds took,
// and what was dealt is dealt again to whoever asks again.
func TestRefillGoesOn(t *testing.T) {
	h := runtest.New(t, map[string]string{"rl.refill.rounds": "2"})
	var dealt []string
	for step, more := range [][]int{{2, 1}, {}, {1}, {3}} {
		ids := selected(t, h, step+1, 0, 0)
		for i, n := range more {
			ids = append(ids, selected(t, h, step+1, i+1, n)...)
		}
		sorted := slices.Sorted(slices.Values(ids))
		if len(slices.Compact(sorted)) != len(ids) {
			t.Errorf("step %d has a problem twice: %v", step+1, ids)
		}
		if again := selected(t, h, step+1, 0, 0); !slices.Equal(again, ids[:3]) {
			t.Errorf("step %d is dealt anew: %v, was %v", step+1, again, ids[:3])
		}
		dealt = append(dealt, ids...)
	}
	if first := slices.Sorted(slices.Values(dealt[:6])); len(slices.Compact(first)) != 6 { // the seventh may close the pass in another step
		t.Errorf("the first pass deals %v", dealt)
	}
}

// rate stores what a step found of problems.
func rate(t *testing.T, h *runtest.Run, step int, rates map[string]float64) {
	t.Helper()
	batch := run.StoredBatch{Step: step}
	for id, r := range rates {
		batch.Groups = append(batch.Groups, run.GroupRecord{ProblemID: id, Fate: grpo.FateKept, All: series.Tally{Num: 10, Reward: 10 * r}})
	}
	if _, err := artifact.PutOnce(t.Context(), h.Store, h.Layout.Step(step).Batch(), batch); err != nil {
		t.Fatal(err)
	}
}

// TestBands: what is out of the band rests for a pass over the data and then returns.
func TestBands(t *testing.T) {
	h := runtest.New(t, map[string]string{"stages[0].bands": "{min_pass_rate: 0.1, max_pass_rate: 0.9}"})
	solved := selected(t, h, 1, 0, 0)
	rates := map[string]float64{}
	for _, id := range solved {
		rates[id] = 1
	}
	rate(t, h, 1, rates)
	times := map[string]int{}
	last := 0
	for step := 2; step <= 12; step++ {
		ids := selected(t, h, step, 0, 0)
		own := map[string]float64{}
		for _, id := range ids {
			own[id] = 0.5
			times[id]++
		}
		rate(t, h, step, own)
		for _, id := range solved {
			if slices.Contains(ids, id) && last == 0 {
				last = step
			}
		}
	}
	// The first pass deals 7 problems, the second 4: those solved return in the third, which
	// begins with the twelfth problem, in step 4 at the earliest.
	if last < 4 || last > 6 {
		t.Errorf("what was solved returned in step %d: %v", last, times)
	}
}

// TestFilterRanges: by sampled rates and by stored ones.
func TestFilterRanges(t *testing.T) {
	rates := filepath.Join(t.TempDir(), "rates.jsonl")
	h := runtest.New(t, nil)
	problems := h.Problems(t, h.Layout.Stage(1).Train())
	var lines []string
	for i, p := range problems {
		lines = append(lines, fmt.Sprintf(`{"id": %q, "pass_rate": %g}`, p.ID, float64(i)/6))
	}
	if err := os.WriteFile(rates, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h = runtest.New(t, map[string]string{"stages[0].filter": "{rates: " + rates + ", min_pass_rate: 0.1, max_pass_rate: 0.7}", "rl.problems_per_step": "2"})
	if err := os.Remove(rates); err != nil { // the run has its own copy
		t.Fatal(err)
	}
	r, _ := h.NewSampling(t)
	got, err := r.Filter(t.Context(), sampling.FilterInput{Run: h.Ref, Stage: 1, Policy: runtest.PolicyRef(0)}, r.NewProgress())
	if err != nil || got.Problems != 7 || got.Removed != 3 || got.Left != 4 || got.Rule != "pass rates from 0.1 to 0.7" {
		t.Errorf("by stored rates %+v (%v), want those of 0, 5/6 and 1 to go", got, err)
	}
	h = runtest.New(t, map[string]string{"stages[0].filter": "{rollouts: 4, min_pass_rate: 0.25}", "rl.problems_per_step": "2"})
	r, engine := h.NewSampling(t)
	unsolved := problems[:2]
	engine.Knows = func(prompt string, req inference.Request) bool {
		return req.Seed%2 == 0 && !slices.ContainsFunc(unsolved, func(p rl.Problem) bool { return p.Prompt == prompt })
	}
	got, err = r.Filter(t.Context(), sampling.FilterInput{Run: h.Ref, Stage: 1, Policy: runtest.PolicyRef(0)}, r.NewProgress())
	stored, ok, lookupErr := artifact.Lookup[run.StoredFilter](t.Context(), h.Store, h.Layout.Stage(1).Filter())
	if err != nil || lookupErr != nil || !ok || got.Left < 2 || got.Rule != "pass rates from 0.25 to below 1" {
		t.Errorf("by sampled rates %+v (%v, %v)", got, err, lookupErr)
	}
	for _, p := range unsolved {
		if !slices.Contains(stored.RemovedIDs, p.ID) {
			t.Errorf("%s stays, which none of its rollouts solves: %v went", p.ID, stored.RemovedIDs)
		}
	}
}

// TestEvaluateSet samples a set at its own settings, once, and without a greedy rollout
// where none is asked for.
func TestEvaluateSet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "set.jsonl")
	if err := os.WriteFile(file, []byte(`{"id": "s1", "env": "chase", "prompt": "k1?", "answer": "5", "fixture": "db = {'k1': 5}"}`+"\n"+
		`{"id": "s2", "env": "chase", "prompt": "k2?", "answer": "6", "fixture": "db = {'k2': 6}"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := runtest.New(t, map[string]string{"eval.sets": "[{name: own, path: " + file + ", rollouts: 3, temperature: 0.6, max_turns: 2, max_response_tokens: 100}]"})
	r, engine := h.NewSampling(t)
	in := sampling.EvaluateInput{Run: h.Ref, Set: "own", Policy: runtest.PolicyRef(2), Label: "step-000002"}
	got, err := r.Evaluate(t.Context(), in, r.NewProgress())
	if err != nil || got.Set != "own" || got.NumProblems != 2 || got.Stage != 0 || got.PolicyVersion != 2 || got.Accuracy != got.SampledAccuracy {
		t.Fatalf("%+v (%v)", got, err)
	}
	stored := runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.EvalSet("own", 2).Trajectories())
	if len(stored) != 6 {
		t.Errorf("%d trajectories, want 3 of each of 2 problems", len(stored))
	}
	for _, req := range engine.Requests() {
		if req.Temperature != 0.6 {
			t.Errorf("a request at temperature %g", req.Temperature)
		}
	}
	before := len(engine.Requests())
	in.Label = "final"
	if again, err := r.Evaluate(context.Background(), in, r.NewProgress()); err != nil || len(engine.Requests()) != before || again.Label != "step-000002" {
		t.Errorf("the same policy was measured again: %+v (%v)", again, err)
	}
}
