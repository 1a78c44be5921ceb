package sampling_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/internal/series"
	"temper/sandbox/status"
)

// trajectory is one with the given tool calls, each of 1 token, after a prompt of 1.
func trajectory(problem string, rollout int, reward float64, stop rl.StopReason, calls ...status.Status) rl.Trajectory {
	t := rl.Trajectory{ProblemID: problem, Rollout: rollout, Reward: reward, StopReason: stop, PromptTokens: 1, AnswerTags: 1}
	n := len(calls) + 2
	t.Tokens, t.LossMask, t.RolloutLogprobs = make([]int32, n), make([]bool, n), make([]float32, n)
	for i := range n - 1 {
		t.LossMask[i+1] = true
		turn := rl.Turn{Start: i + 1, End: i + 2, Finish: rl.FinishStop}
		if i < len(calls) {
			turn.Calls = []rl.ToolCall{{Status: calls[i]}}
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// TestBatchNumbers on groups made by hand.
func TestBatchNumbers(t *testing.T) {
	h := runtest.New(t, map[string]string{"rl.rollouts_per_problem": "4", "rl.roc.enabled": "false"})
	ids := h.Selected(t, 1, 1)
	for id, group := range map[string][]rl.Trajectory{
		ids[0]: { // teaches
			trajectory(ids[0], 0, 1, rl.StopAnswered, status.OK),
			trajectory(ids[0], 1, 1, rl.StopAnswered, status.Error, status.OK, status.OK),
			trajectory(ids[0], 2, 0, rl.StopMaxTokens, status.Malformed),
			trajectory(ids[0], 3, 0, rl.StopInfraError, status.OK, status.OK),
		},
		ids[1]: {trajectory(ids[1], 0, 1, rl.StopAnswered), trajectory(ids[1], 1, 1, rl.StopAnswered)},
		ids[2]: {trajectory(ids[2], 0, 0, rl.StopAnswered), trajectory(ids[2], 1, 0, rl.StopMaxTurns, status.TimeLimit)},
	} {
		putGroup(t, h, 1, id, group)
	}
	in := sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids}
	got, err := sampling.BuildBatch(t.Context(), h.Store, in)
	if err != nil {
		t.Fatal(err)
	}
	want := run.StepRollouts{
		RewardMean:       4. / 7,
		ToolErrorRate:    3. / 6,
		CorrectErrorRate: 1. / 4, KeptErrorRate: 1. / 4,
		MeanResponseTokens: (2. + 4 + 2 + 1 + 1 + 1 + 2) / 7, MeanTurns: (2. + 4 + 2 + 1 + 1 + 1 + 2) / 7,
		MeanCalls: 6. / 7, ClipRatio: 1. / 7,
		Groups: 3, GroupsAllCorrect: 1, GroupsAllWrong: 1, Trajectories: 8, Kept: 3, InfraErrors: 1,
		Released: series.Released{Groups: 1, Trajectories: 3, Results: 5, Answers: 3, OneAnswer: 3}, // no result has a word
		Spread: series.SpreadSummary{
			ResponseMin: 1, ResponseP50: 2, ResponseP90: 2, ResponseMax: 4, // of 1 1 1 2 2 2 4
			Prompts: series.Range{Num: 7, Sum: 7, Min: 1, Max: 1}, Rewards: series.Range{Num: 7, Sum: 4, Min: 0, Max: 1},
			Turns:      series.Range{Num: 7, Sum: 13, Min: 1, Max: 4},
			Advantages: series.Range{Num: 3, Sum: 0, Min: -2 / math.Sqrt(3), Max: 1 / math.Sqrt(3)}, // rewards 1 1 0
			Statuses:   map[status.Status]int{status.OK: 3, status.Error: 1, status.Malformed: 1, status.TimeLimit: 1},
		},
	}
	nearly := cmp.FilterPath(func(p cmp.Path) bool { return strings.Contains(p.GoString(), ".Advantages.") }, cmpopts.EquateApprox(0, 1e-5)) // for the epsilon beside the deviation
	if diff := cmp.Diff(got.Stats, want, cmpopts.IgnoreFields(want, "PErrMean", "PFormatMean"), nearly); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
	if got.Stats.PErrMean <= 0 || got.Stats.PErrMean >= 1 {
		t.Errorf("mean error penalty of correct trajectories %v", got.Stats.PErrMean)
	}
	var advantages []float32
	for _, g := range runtest.ReadLines[run.StoredBatch](t, h.Store, h.Layout.Batch(1))[0].Groups {
		if (g.Fate == grpo.FateKept) != (g.ProblemID == ids[0]) || (g.NumSamples > 0) != (g.Fate == grpo.FateKept) {
			t.Errorf("group %s: runtest.Fate %s with %d samples", g.ProblemID, g.Fate, g.NumSamples)
		}
		if g.NumSamples == 0 {
			continue
		}
		data, err := blob.ReadRef(t.Context(), h.Store, g.Samples)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := rl.ReadSamples(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			advantages = append(advantages, s.Advantage)
		}
	}
	if got.Samples != 3 || len(advantages) != 3 || advantages[0] <= 0 || advantages[2] >= 0 {
		t.Errorf("%d samples with advantages %v", got.Samples, advantages)
	}

	for _, id := range ids { // a second attempt must not need the groups
		if err := h.Store.Delete(t.Context(), h.Layout.Group(1, id)); err != nil {
			t.Fatal(err)
		}
	}
	before := runtest.Dump(t, h.Store)
	again, err := sampling.BuildBatch(t.Context(), h.Store, in)
	if diff := cmp.Diff(again, got); err != nil || diff != "" {
		t.Errorf("built twice (%v): got -, want +\n%s", err, diff)
	}
	if diff := cmp.Diff(runtest.Dump(t, h.Store), before); diff != "" {
		t.Errorf("the second attempt wrote:\n%s", diff)
	}
}

func putGroup(t testing.TB, h *runtest.Run, step int, id string, group []rl.Trajectory) {
	t.Helper()
	var lines strings.Builder
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, tr := range group {
		if err := enc.Encode(tr); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Put(t, h.Store, h.Layout.Group(step, id), lines.String())
}

// TestStepWithoutSignalHasNoSamples, but says what became of its groups.
func TestStepWithoutSignalHasNoSamples(t *testing.T) {
	h := runtest.New(t, nil)
	ids := h.Selected(t, 1, 1)
	for _, id := range ids {
		putGroup(t, h, 1, id, []rl.Trajectory{trajectory(id, 0, 1, rl.StopAnswered), trajectory(id, 1, 1, rl.StopAnswered)})
	}
	got, err := sampling.BuildBatch(t.Context(), h.Store, sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids})
	if err != nil || got.Samples != 0 || got.Stats.GroupsAllCorrect != 3 {
		t.Errorf("%+v (%v)", got, err)
	}
	for key := range runtest.Dump(t, h.Store) {
		if strings.HasPrefix(key, h.Layout.Step(1, "samples")) {
			t.Errorf("samples of a group without a signal are stored: %s", key)
		}
	}
}

func TestRecordThatMustNotBeTrainedOn(t *testing.T) {
	h := runtest.New(t, nil)
	ids := h.Selected(t, 1, 1)
	for _, id := range ids {
		putGroup(t, h, 1, id, []rl.Trajectory{trajectory(ids[0], 0, 1, rl.StopAnswered)}) // ids[0] in all groups
	}
	_, err := sampling.BuildBatch(t.Context(), h.Store, sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids})
	runtest.WantFault(t, err, fault.Corrupt, "step 1: trajectory ")
}
