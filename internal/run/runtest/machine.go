package runtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Machine is a trainer process on a store.
type Machine struct {
	*learner.Service
	// Learners are all that the process has made, the newest last.
	Learners []*Chain
}

// Boot starts a trainer process that dies as f says.
func Boot(store blob.Store, f *Fate) *Machine {
	m := &Machine{}
	m.Service = learner.NewService(learner.Config{
		Store: Mortal{Store: store, Fate: f}, Now: Still, Background: func(task func()) { task() }, // moments have an order
		New: func(r *run.Loaded) (learner.Learner, error) {
			m.Learners = append(m.Learners, &Chain{Fate: f, Model: r.Model})
			return m.Learners[len(m.Learners)-1], nil
		},
	})
	return m
}

// StoreBatches stores a batch for each given step; one in three has no sample.
func (h *Run) StoreBatches(t testing.TB, steps ...int) {
	t.Helper()
	for _, step := range steps {
		var built run.BuiltBatch
		if step%3 != 0 {
			built = h.StoreBatch(t, step, fmt.Sprint("p", step))
		}
		built.Stats.RewardMean = 1 / float64(step) // the best checkpoint is the first one, which stays in any case
		if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.Step(step).BatchStats(), built, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
}

// StoreBatch stores the batch of a step, with one sample of each problem.
func (h *Run) StoreBatch(t testing.TB, step int, problems ...string) run.BuiltBatch {
	t.Helper()
	batch := run.StoredBatch{Step: step}
	for _, id := range problems {
		var samples bytes.Buffer
		if err := rl.WriteSamples(&samples, []rl.Sample{{ProblemID: id}}); err != nil {
			t.Fatal(err)
		}
		ref, err := blob.PutBytes(t.Context(), h.Store, h.Layout.Step(step).Samples(id), samples.Bytes(), blob.Always)
		if err != nil {
			t.Fatal(err)
		}
		batch.Groups = append(batch.Groups, run.GroupRecord{ProblemID: id, Samples: ref, NumSamples: 1})
	}
	data, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	Put(t, h.Store, h.Layout.Step(step).Batch(), string(data))
	return run.BuiltBatch{Batch: blob.RefOf(h.Layout.Step(step).Batch(), data), Samples: len(problems)}
}

// StepInput asks for the update of a step by the batch that is stored.
func (h *Run) StepInput(t testing.TB, step int, save bool) learner.StepInput {
	t.Helper()
	built, _, err := artifact.Lookup[run.BuiltBatch](t.Context(), h.Store, h.Layout.Step(step).BatchStats())
	if err != nil {
		t.Fatal(err)
	}
	return learner.StepInput{Run: h.Ref, Step: step, Batch: built.Batch, Save: save}
}

// Script is what a trainer is asked to do in a run, in order: supervised updates in
// two parts, policy 0, and the given steps, of which the even ones leave a checkpoint.
func (h *Run) Script(t testing.TB, steps ...int) []func(*Machine) error {
	sft := func(from, to int) func(*Machine) error {
		return func(m *Machine) error {
			_, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, From: from, To: to, Save: true})
			return err
		}
	}
	script := []func(*Machine) error{sft(0, 2), sft(2, 4), func(m *Machine) error {
		_, err := m.Publish(t.Context(), learner.PublishInput{Run: h.Ref})
		return err
	}}
	for _, step := range steps {
		script = append(script, func(m *Machine) error {
			_, err := m.TrainStep(t.Context(), h.StepInput(t, step, step%2 == 0))
			return err
		})
	}
	return script
}

// Play carries a script out and repeats each call that fails: with restart on a new
// process, else on the same one. Only a death may make a call fail.
func Play(t testing.TB, store blob.Store, f *Fate, restart bool, script []func(*Machine) error) *Machine {
	t.Helper()
	m := Boot(store, f)
	late := false // a save that failed in the background is told by the next activity
	for _, activity := range script {
		for err := activity(m); err != nil; err = activity(m) {
			if !f.Dead && !late {
				t.Fatalf("an activity fails without a fault: %v", err)
			}
			late = f.Dead && !restart
			f.Dead = false
			endCollections(t, store)
			if restart {
				m = Boot(store, f)
			}
		}
	}
	return m
}

// CarryOut carries a script out on a machine without faults.
func CarryOut(t testing.TB, m *Machine, script []func(*Machine) error) {
	t.Helper()
	for i, activity := range script {
		if err := activity(m); err != nil {
			t.Fatalf("activity %d: %v", i, err)
		}
	}
}

// endCollections deletes the marks of garbage collections whose process died, as if they
// had expired.
func endCollections(t testing.TB, store blob.Store) {
	t.Helper()
	infos, err := store.List(t.Context(), "cas/gc/")
	for _, info := range infos {
		err = errors.Join(err, store.Delete(t.Context(), info.Key))
	}
	if err != nil {
		t.Fatal(err)
	}
}
