package learner_test

import (
	"bytes"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
)

// TestTokenStatsAreRecorded: of as many groups as the run asks for, each token that was
// sampled has what the trainer says of it, the policies have the same bits, and the record
// goes with the trajectories.
func TestTokenStatsAreRecorded(t *testing.T) {
	policies := map[string]map[string]string{}
	for groups, most := range map[string]int{"0": 0, "1": 1, "9": 9} {
		h := runtest.New(t, map[string]string{"tracker.token_stats": groups, "checkpoint.keep_trajectories": "2"})
		h.StoreBatches(t, sixSteps...)
		storeTrajectories(t, h, sixSteps...)
		runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, sixSteps...))
		infos, err := h.Store.List(t.Context(), h.Layout.Steps()+"/")
		if err != nil {
			t.Fatal(err)
		}
		perStep, entropies := map[string]int{}, 0
		for _, info := range infos {
			if path.Base(info.Key) == "entropies.zst" {
				entropies++
			}
			if folder := path.Dir(info.Key); path.Base(folder) == "tokens" {
				perStep[folder]++
				checkStats(t, h, info.Key, path.Join(path.Dir(folder), "batch.json"), strings.TrimSuffix(path.Base(info.Key), ".zst"))
			}
		}
		if most > 0 == (len(perStep) == 0) || len(perStep) > 2 {
			t.Errorf("%s groups: %d steps have a record, want those whose trajectories stay", groups, len(perStep))
		}
		if most > 0 && entropies <= len(perStep) || most == 0 && entropies > 0 {
			t.Errorf("%s groups: %d steps have mean entropies, want those whose trajectories are gone as well", groups, entropies)
		}
		for folder, n := range perStep {
			if n > most {
				t.Errorf("%s: %d groups, want %d at most", folder, n, most)
			}
		}
		policies[groups] = map[string]string{}
		for key, text := range runtest.Durable(t, h.Store) {
			if strings.Contains(key, "/policies/") && !strings.HasSuffix(key, ".json") {
				policies[groups][key] = text
			}
		}
	}
	for key, text := range policies["0"] {
		if policies["9"][key] != text || policies["1"][key] != text {
			t.Errorf("%s differs", key)
		}
	}
}

// TestTokenStatsAreCompleted: an attempt that died in between leaves some groups of a step;
// the next one writes them all.
func TestTokenStatsAreCompleted(t *testing.T) {
	play := func(left string) []string {
		h := runtest.New(t, map[string]string{"tracker.token_stats": "9"})
		h.StoreBatches(t, sixSteps...)
		built := h.StoreBatch(t, 1, "p1", "q1")
		if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.BatchStats(1), built, blob.Always); err != nil {
			t.Fatal(err)
		}
		if left != "" {
			if _, err := blob.PutBytes(t.Context(), h.Store, left, []byte("left"), blob.Always); err != nil {
				t.Fatal(err)
			}
		}
		runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, sixSteps...))
		infos, _, err := h.Store.ListFolder(t.Context(), h.Layout.TokensFolder(1))
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, info := range infos {
			keys = append(keys, info.Key)
		}
		if left != "" {
			if data, err := blob.ReadKey(t.Context(), h.Store, left); err != nil || string(data) == "left" {
				t.Errorf("%s is what the attempt left (%v)", left, err)
			}
		}
		return keys
	}
	want := play("")
	if len(want) != 2 {
		t.Fatalf("groups with a record: %v, want 2", want)
	}
	if got := play(want[0]); !slices.Equal(got, want) {
		t.Errorf("groups with a record: %v, want %v", got, want)
	}
}

// checkStats holds a record to the samples of its problem in the batch.
func checkStats(t *testing.T, h *runtest.Run, recorded, batch, problem string) {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), h.Store, recorded)
	if err != nil {
		t.Fatal(err)
	}
	list, err := record.DecodeTokens(data)
	if err != nil {
		t.Fatal(err)
	}
	var stored run.StoredBatch
	if err := blob.ReadJSON(t.Context(), h.Store, batch, &stored); err != nil {
		t.Fatal(err)
	}
	var samples []rl.Sample
	for _, g := range stored.Groups {
		if g.ProblemID != problem {
			continue
		}
		data, err := blob.ReadRef(t.Context(), h.Store, g.Samples)
		if err == nil {
			samples, err = rl.ReadSamples(bytes.NewReader(data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(samples) != len(list) || len(list) == 0 {
		t.Fatalf("%s: %d samples of %s, %d in the record", batch, len(samples), problem, len(list))
	}
	for i, s := range samples {
		k := 0
		for p, in := range s.LossMask {
			if !in {
				continue
			}
			engine := 0.0
			if s.RolloutLogprobs != nil {
				engine = float64(s.RolloutLogprobs[p])
			}
			if math.Abs(list[i].Differences[k]-(-1-engine)) > 1e-6 || math.Abs(list[i].Entropies[k]-float64(p)) > 1e-3 {
				t.Errorf("%s, rollout %d, token %d: %v, %v", recorded, s.Rollout, p, list[i].Differences[k], list[i].Entropies[k])
			}
			k++
		}
		if k != len(list[i].Entropies) || list[i].Rollout != s.Rollout {
			t.Errorf("%s: %d tokens of rollout %d, want %d of %d", recorded, len(list[i].Entropies), list[i].Rollout, k, s.Rollout)
		}
	}
}
