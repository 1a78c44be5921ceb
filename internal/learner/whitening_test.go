package learner_test

import (
	"math"
	"testing"

	"temper/internal/blob"
	"temper/internal/history"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// TestWhitenedBatch: the trainer, the index, the page of a group and the series all see
// the whitened advantages of an estimator that whitens, and none of those of another.
func TestWhitenedBatch(t *testing.T) {
	raw := whitenedBatch(t, "no_deviation")
	got := whitenedBatch(t, "reinforce_plus_plus_baseline")
	mean, squares, n := 0.0, 0.0, 0.0
	for i, s := range got.Samples {
		a, tokens := float64(s.Advantage), float64(s.LossTokens())
		mean, squares, n = mean+a*tokens, squares+a*a*tokens, n+tokens
		if (s.Advantage > got.Samples[0].Advantage) != (raw.Samples[i].Advantage > raw.Samples[0].Advantage) {
			t.Errorf("sample %d: the order of advantages changed", i)
		}
	}
	if math.Abs(mean/n) > 1e-6 || math.Abs(squares/(n-1)-1) > 1e-5 {
		t.Errorf("over %g tokens: mean %g and variance %g, want 0 and 1", n, mean/n, squares/(n-1))
	}
}

func whitenedBatch(t *testing.T, estimator string) rl.Batch {
	t.Helper()
	h := runtest.New(t, map[string]string{"rl.rollouts_per_problem": "4", "rl.advantage": estimator, "rl.roc.enabled": "false"})
	ids := h.Selected(t, 1, 1)
	for i, id := range ids {
		var group []rl.Trajectory
		for k := range 4 {
			n := 2 + i + k // tokens
			tr := rl.Trajectory{
				ProblemID: id, Rollout: k, StopReason: rl.StopAnswered, PromptTokens: 1, AnswerTags: 1,
				Tokens: make([]int32, n), LossMask: make([]bool, n), RolloutLogprobs: make([]float32, n), Turns: []rl.Turn{{Start: 1, End: n}},
			}
			for at := range tr.LossMask[1:] {
				tr.LossMask[at+1] = true
			}
			if k <= i { // one more of each group is right
				tr.Reward = 1
			}
			group = append(group, tr)
		}
		data, err := record.Lines(group)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := blob.PutBytes(t.Context(), h.Store, h.Layout.Step(1).Group(id), data, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	built, err := sampling.BuildBatch(t.Context(), h.Store, sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := learner.ReadBatch(t.Context(), h.Store, built.Batch)
	if err != nil || len(batch.Samples) == 0 {
		t.Fatalf("%d samples, %v", len(batch.Samples), err)
	}
	stored, err := history.Open(t.Context(), h.Store, "demo")
	if err != nil {
		t.Fatal(err)
	}
	rows, ok, err := history.RolloutsOf(stored).Index(t.Context(), 1)
	if err != nil || !ok {
		t.Fatalf("index: %v, %v", ok, err)
	}
	indexed := map[string]map[int]float32{}
	for _, row := range rows {
		if indexed[row.Problem] == nil {
			indexed[row.Problem] = map[int]float32{}
		}
		if row.Advantage != nil {
			indexed[row.Problem][row.Rollout] = float32(*row.Advantage)
		}
	}
	sum := 0.0
	for _, s := range batch.Samples {
		sum += float64(s.Advantage)
		of, _, err := history.RolloutsOf(stored).Advantages(t.Context(), 1, s.ProblemID)
		if err != nil || float32(of[s.Rollout]) != s.Advantage || indexed[s.ProblemID][s.Rollout] != s.Advantage {
			t.Errorf("%s: the trainer gets %g for %s/%d, the index has %g, the group %g (%v)",
				estimator, s.Advantage, s.ProblemID, s.Rollout, indexed[s.ProblemID][s.Rollout], of[s.Rollout], err)
		}
	}
	if got := built.Stats.Spread.Advantages; got.Num != len(batch.Samples) || math.Abs(got.Sum-sum) > 1e-5 {
		t.Errorf("%s: %d advantages with sum %g in the series, want %d with %g", estimator, got.Num, got.Sum, len(batch.Samples), sum)
	}
	return batch
}
