package sampling_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// partial is a run whose policies sample 15 tokens of each trajectory.
func partial(t *testing.T) *runtest.Run {
	t.Helper()
	return runtest.New(t, map[string]string{"rl.window": "2", "rl.partial_rollout_tokens": "15", "rl.loss.old_logprobs": "rollout"})
}

// spansOf are the spans of a step whose versions begin with one.
func spansOf(first int64) []run.PolicySpan {
	return []run.PolicySpan{
		{Until: 15, Policy: runtest.PolicyRef(first)}, {Until: 30, Policy: runtest.PolicyRef(first + 1)}, {Policy: runtest.PolicyRef(first + 2)},
	}
}

// sampleInParts samples a step, span after span, in two shards, and builds its batch.
func sampleInParts(t *testing.T, h *runtest.Run, r *sampling.Service) (run.Sampled, error) {
	t.Helper()
	in := sampleInput(t, h, 1, 3)
	batch := sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 3, ProblemIDs: in.ProblemIDs}
	var all run.Sampled
	for _, ids := range [][]string{in.ProblemIDs[:1], in.ProblemIDs[1:]} {
		var sum run.Sampled
		spans := spansOf(0)
		for i := range spans {
			in.ProblemIDs, in.Policy, in.Until, in.Before = ids, spans[i].Policy, spans[i].Until, spans[:i]
			out, err := r.SampleGroups(t.Context(), in, r.NewProgress())
			if err != nil {
				return sum, err
			}
			if sum = sum.Then(out); out.Open == 0 {
				break
			}
		}
		batch.Shards = append(batch.Shards, sum.Shards...)
		all.Groups += sum.Groups
	}
	_, err := sampling.BuildBatch(t.Context(), r.Store, batch)
	return all, err
}

// TestSpansOfAStep: the trajectories are those of one policy that says the same, each token
// is of the version that its place asks for, and the numbers of the step count them.
func TestSpansOfAStep(t *testing.T) {
	h := partial(t)
	whole := runtest.Fill(t, runtest.Dump(t, h.Store))
	r, engine := h.NewSampling(t)
	out, err := sampleInParts(t, h, r)
	if err != nil || out.Groups != 3 {
		t.Fatalf("%+v (%v), want 3 groups", out, err)
	}
	got := runtest.Dump(t, h.Store)
	for key := range got {
		if strings.Contains(key, "/parts/") {
			t.Errorf("%s is left", key)
		}
	}
	if !slices.Contains(engine.Loads, 2) {
		t.Errorf("loaded %v: no trajectory goes on to the last policy", engine.Loads)
	}
	tokens := map[int64]int{}
	several := 0
	once := *h
	once.Store = whole
	r2, _ := once.NewSampling(t)
	in := sampleInput(t, &once, 1, 3)
	if _, err := r2.SampleGroups(t.Context(), in, r2.NewProgress()); err != nil {
		t.Fatal(err)
	}
	for _, id := range in.ProblemIDs {
		key := h.Layout.Step(3).Group(id)
		want, parts := runtest.ReadLines[rl.Trajectory](t, once.Store, key), runtest.ReadLines[rl.Trajectory](t, h.Store, key)
		if diff := cmp.Diff(parts, want, cmpopts.IgnoreFields(rl.Trajectory{}, "Spans", "PolicyVersion")); diff != "" {
			t.Errorf("%s: got -, want +\n%s", id, diff)
		}
		for _, tr := range parts {
			if len(tr.Spans) > 0 {
				several++
			}
			for i, sampled := range tr.LossMask {
				if version := min(2, int64((i-tr.PromptTokens)/15)); sampled {
					tokens[version]++
					if tr.VersionAt(i) != version {
						t.Fatalf("%s/%d: response token %d is of version %d, want %d", id, tr.Rollout, i-tr.PromptTokens, tr.VersionAt(i), version)
					}
				}
			}
		}
	}
	built := runtest.ReadLines[run.BuiltBatch](t, h.Store, h.Layout.Step(3).BatchStats())[0]
	counted := map[int64]int{}
	for _, v := range built.Stats.Versions {
		counted[v.Version] = v.Tokens
	}
	if !maps.Equal(counted, tokens) || built.Stats.Partial != several || len(tokens) != 3 || several < 9 {
		t.Errorf("counted %v of %d partial trajectories, want %v of %d", counted, built.Stats.Partial, tokens, several)
	}
}

// TestSpansSurviveDeaths at each write of a step: the end has the same bytes.
func TestSpansSurviveDeaths(t *testing.T) {
	h := partial(t)
	prepared := runtest.Dump(t, h.Store)
	r, _ := h.NewSampling(t)
	calm := runtest.Fate{}
	r.Store = runtest.Mortal{Store: h.Store, Fate: &calm}
	if _, err := sampleInParts(t, h, r); err != nil {
		t.Fatal(err)
	}
	want := runtest.Dump(t, h.Store)
	parts := 0
	for _, name := range calm.Names {
		if strings.HasPrefix(name, "after put") && strings.Contains(name, "/parts/") {
			parts++
		}
	}
	if parts < 5 {
		t.Fatalf("%d groups were stored between spans, of moments %q", parts, calm.Names)
	}
	for at := 1; at <= calm.Count; at++ {
		h.Store = runtest.Fill(t, prepared)
		f := runtest.Fate{At: at}
		r, _ := h.NewSampling(t)
		r.Store = runtest.Mortal{Store: h.Store, Fate: &f}
		if _, err := sampleInParts(t, h, r); !errors.Is(err, runtest.ErrDied) {
			t.Fatalf("moment %d: error %v", at, err)
		}
		r, _ = h.NewSampling(t)
		if _, err := sampleInParts(t, h, r); err != nil {
			t.Fatalf("after death %s: %v", f.Names[at-1], err)
		}
		if diff := cmp.Diff(runtest.Dump(t, h.Store), want); diff != "" {
			t.Fatalf("after death %s: got -, want +\n%s", f.Names[at-1], diff)
		}
	}
}

// TestLostPartsAreSampledAgain by the policies that sampled them, to the same bytes.
func TestLostPartsAreSampledAgain(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, h *runtest.Run, key string){
		"gone": func(t *testing.T, h *runtest.Run, key string) {
			if err := h.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		},
		"empty": func(t *testing.T, h *runtest.Run, key string) { runtest.Put(t, h.Store, key, "") },
		"half stored": func(t *testing.T, h *runtest.Run, key string) {
			data := runtest.Dump(t, h.Store)[key]
			runtest.Put(t, h.Store, key, data[:len(data)/2])
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := partial(t)
			r, engine := h.NewSampling(t)
			in, spans := sampleInput(t, h, 1, 3), spansOf(0)
			for i := range spans {
				in.Policy, in.Until, in.Before = spans[i].Policy, spans[i].Until, spans[:i]
				if i == 2 {
					engine.Loads = nil
					for key := range runtest.Dump(t, h.Store) {
						if strings.Contains(key, "/parts/") {
							spoil(t, h, key)
						}
					}
				}
				if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(engine.Loads, []int64{1, 0, 1, 2}) && !slices.Equal(engine.Loads, []int64{2, 1, 0, 1, 2}) {
				t.Errorf("loaded %v, want the policies of all spans once more", engine.Loads)
			}
			want := partial(t)
			r, _ = want.NewSampling(t)
			if _, err := sampleInParts(t, want, r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(groupsOf(t, h, 3), groupsOf(t, want, 3)); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestSpansThatDoNotFollow are refused before anything is sampled.
func TestSpansThatDoNotFollow(t *testing.T) {
	h := partial(t)
	r, engine := h.NewSampling(t)
	for name, spans := range map[string][]run.PolicySpan{
		"an open span in the middle": {{Policy: runtest.PolicyRef(0)}, {Policy: runtest.PolicyRef(1)}},
		"an older policy":            {{Until: 5, Policy: runtest.PolicyRef(1)}, {Policy: runtest.PolicyRef(0)}},
		"an end before the last":     {{Until: 5, Policy: runtest.PolicyRef(0)}, {Until: 5, Policy: runtest.PolicyRef(1)}},
		"a negative end":             {{Until: -5, Policy: runtest.PolicyRef(0)}},
	} {
		in := sampleInput(t, h, 1, 3)
		last := len(spans) - 1
		in.Policy, in.Until, in.Before = spans[last].Policy, spans[last].Until, spans[:last]
		if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); fault.Of(err) != fault.InvalidConfig {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if n := len(engine.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
}
