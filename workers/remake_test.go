package workers

import (
	"log/slog"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/replay"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/sandbox/sandboxtest"
)

// remakeOptions are those of a test: the engine and the trainer are real, the sandbox
// is not.
func remakeOptions(store blob.Store) RemakeOptions {
	return RemakeOptions{Store: store, Concurrent: 8, Executor: &sandboxtest.Fake{Func: runtest.Python}, Log: slog.New(slog.DiscardHandler)}
}

// makeStep makes step 1 of a run with the services of the roles.
func makeStep(t *testing.T, h *runtest.Run) {
	t.Helper()
	ctx, o := t.Context(), remakeOptions(h.Store)
	trainer := learner.NewService(learner.Config{Store: h.Store, New: learnerFactory{}.make, Now: time.Now})
	defer trainer.Close(time.Minute)
	if _, err := trainer.TrainSFT(ctx, learner.SFTInput{Run: h.Ref, To: 4, Save: true}); err != nil {
		t.Fatal(err)
	}
	policy, err := trainer.Publish(ctx, learner.PublishInput{Run: h.Ref})
	if err != nil {
		t.Fatal(err)
	}
	rollouts := Remake(o).NewSampling(h.Store)
	defer rollouts.Close()
	ids := h.Selected(t, 1, 1)
	sampled, err := rollouts.SampleGroups(ctx, sampling.GroupsInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids, Policy: policy}, rollouts.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	built, err := sampling.BuildBatch(ctx, h.Store, sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: ids, Shards: sampled.Shards})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := trainer.TrainStep(ctx, h.StepInput(t, 1, false))
	if err != nil {
		t.Fatal(err)
	}
	log := run.StepInput{Run: h.Ref, Stage: 1, StageName: "first", Step: 1, NumSteps: 6, Sample: sampled, Rollouts: built.Stats, Train: trained, Started: time.Now(), Ended: time.Now()}
	if _, err := run.LogStep(ctx, h.Store, h.Config, log); err != nil {
		t.Fatal(err)
	}
}

// TestRemakeOfARealStep: an engine and a trainer that are made anew sample and learn
// the same, also when the policy between them is gone or damaged. What is damaged of
// the step comes back with the bytes that it had.
func TestRemakeOfARealStep(t *testing.T) {
	h := runtest.New(t, nil)
	makeStep(t, h)
	whole := runtest.Dump(t, h.Store)
	weights := path.Join(h.Layout.Policy(0).Dir(), "model.safetensors")
	trajectories := h.Layout.Step(1).Group(h.Selected(t, 1, 1)[0])
	for name, change := range map[string]func(store blob.Store){
		"untouched": func(blob.Store) {},
		"policy before is damaged": func(store blob.Store) {
			runtest.Put(t, store, weights, strings.Replace(whole[weights], "\x00", "\x01", 1))
		},
		"policy before is gone": func(store blob.Store) {
			if err := store.Delete(t.Context(), h.Layout.Policy(0).Ref()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		store := runtest.Fill(t, whole)
		change(store)
		r, err := Remake(remakeOptions(store)).Step(t.Context(), "demo", 1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := len(r.Damaged()); n > 0 || len(r.Objects) < 8 || (len(r.Notes) > 0) != (name != "untouched") {
			t.Errorf("%s: %d of %d objects differ: %+v, notes %q", name, n, len(r.Objects), r.Damaged(), r.Notes)
		}
	}
	store := runtest.Fill(t, whole)
	damaged := []string{trajectories, weights}
	var refs []blob.Ref
	for _, key := range damaged {
		refs = append(refs, blob.RefOf(key, []byte(whole[key])))
		runtest.Put(t, store, key, "garbage")
	}
	done, err := Remake(remakeOptions(store)).Repair(t.Context(), "demo", refs, false)
	if err != nil || len(done) != 2 || slices.ContainsFunc(done, func(r replay.Repaired) bool { return !r.Done }) {
		t.Errorf("repaired %+v (%v)", done, err)
	}
	after := runtest.Dump(t, store)
	for key, want := range whole {
		if after[key] != want {
			t.Errorf("%s does not have its bytes again", key)
		}
	}
}
