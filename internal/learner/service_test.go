package learner_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run/runtest"
	"temper/trainer"
)

// TestDeathAtAnyMomentChangesNothing kills the trainer at each of its writes and
// learner calls in turn: before and after them, with and without the process.
func TestDeathAtAnyMomentChangesNothing(t *testing.T) {
	t.Run("recipe", func(t *testing.T) { dieAnywhere(t, runtest.New(t, nil)) })
	t.Run("with a reference policy", func(t *testing.T) {
		dieAnywhere(t, runtest.New(t, map[string]string{"rl.loss.kl.coefficient": "0.1"}))
	})
	t.Run("from a checkpoint", func(t *testing.T) {
		dir := runtest.WriteModel(t, runtest.StartModel(), nil)
		h := runtest.PrepareConfig(t, memblob.New(), "demo", runtest.CheckpointRecipe, map[string]string{"model.path": dir})
		if err := os.RemoveAll(dir); err != nil { // no process may need it any more
			t.Fatal(err)
		}
		dieAnywhere(t, h)
	})
}

func dieAnywhere(t *testing.T, h *runtest.Run) {
	t.Helper()
	steps := []int{1, 2, 3, 5} // step 3 has no sample, step 4 was never made, 5 begins a stage
	h.StoreBatches(t, steps...)
	content := runtest.Dump(t, h.Store)
	script := h.Script(t, steps...)

	undisturbed := runtest.Fate{}
	m := runtest.Play(t, h.Store, &undisturbed, false, script)
	want := runtest.Durable(t, h.Store)
	if m.Learners[0].Reused == 0 {
		t.Fatal("no save takes the memory of an earlier one")
	}
	if undisturbed.Count < 80 {
		t.Fatalf("only %d moments: the world is not watched", undisturbed.Count)
	}
	for _, restart := range []bool{true, false} {
		for at := 1; at <= undisturbed.Count; at++ {
			if restart && !writes(undisturbed.Names[at-1]) {
				continue // a process that dies here leaves the same as before the next write
			}
			f := runtest.Fate{At: at}
			store := runtest.Fill(t, content)
			runtest.Play(t, store, &f, restart, script)
			if got := runtest.Durable(t, store); !maps.Equal(got, want) {
				t.Fatalf("death %s, new process %v: got -, want +\n%s", f.Names[at-1], restart, cmp.Diff(got, want))
			}
		}
	}
}

// writes reports whether a moment is right before a change of the store.
func writes(moment string) bool {
	return strings.HasPrefix(moment, "before put") || strings.HasPrefix(moment, "before swap") || strings.HasPrefix(moment, "before delete")
}

// TestEachUpdateIsMadeOnce on an undisturbed run: the moments of the learner,
// with a fresh optimizer where a stretch of the schedule begins.
func TestEachUpdateIsMadeOnce(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3, 4, 5, 6)
	f := runtest.Fate{}
	runtest.Play(t, h.Store, &f, false, h.Script(t, 1, 2, 3, 4, 5, 6))
	var got []string
	for _, name := range f.Names {
		if what, ok := strings.CutPrefix(name, "after "); ok && !strings.HasPrefix(what, "put") && !strings.HasPrefix(what, "swap") {
			got = append(got, what)
		}
	}
	want := []string{"init", "sft", "sft", "sft", "sft", "reset", "update", "update", "update", "reset", "update"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want + (step 3 and 6 have no sample)\n%s", diff)
	}
}

// TestReferencePolicy: the first stage refers to the policy after SFT, and one
// that resets the optimizer to the policy at its own start, also when the
// process that trains is another one.
func TestReferencePolicy(t *testing.T) {
	h := runtest.New(t, map[string]string{"rl.loss.kl.coefficient": "0.1"})
	h.StoreBatches(t, 1, 2, 4, 5)
	script := h.Script(t, 1, 2, 4, 5)
	m := runtest.Boot(h.Store, &runtest.Fate{})
	do := func(activities ...func(*runtest.Machine) error) [32]byte {
		t.Helper()
		for _, activity := range activities {
			if err := activity(m); err != nil {
				t.Fatal(err)
			}
		}
		return m.Learners[0].State
	}
	afterSFT := do(script[:3]...)
	do(script[3:5]...) // the second of these steps leaves a checkpoint
	if m.Learners[0].Reference != afterSFT {
		t.Error("the first stage does not refer to the policy after SFT")
	}
	m = runtest.Boot(h.Store, &runtest.Fate{})
	begin := do(script[5])
	if m.Learners[0].Reference != afterSFT {
		t.Error("a new process refers to another policy")
	}
	do(script[6])
	if m.Learners[0].Reference != begin || begin == afterSFT {
		t.Error("the second stage does not refer to the policy at its start")
	}
}

// TestStepsThatNeverWereAreLeftOut: a stage that was stopped leaves steps
// without a batch, and the next stage goes on after them.
func TestStepsThatNeverWereAreLeftOut(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 5)
	content := runtest.Dump(t, h.Store)
	script := h.Script(t, 1, 5)
	m := runtest.Play(t, h.Store, &runtest.Fate{}, false, script)
	if n := m.Learners[0].Updates; n != 6 {
		t.Errorf("%d updates, want 4 of SFT and 2 of RL", n)
	}
	again := runtest.Fill(t, content)
	for _, activity := range script { // each on a new process
		if err := activity(runtest.Boot(again, &runtest.Fate{})); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(runtest.Durable(t, again), runtest.Durable(t, h.Store)); diff != "" {
		t.Errorf("after restarts: got -, want +\n%s", diff)
	}
}

func TestWhatARunDoesNotHaveIsNotFound(t *testing.T) {
	h := runtest.New(t, nil)
	m := runtest.Boot(h.Store, &runtest.Fate{})
	publish := func(step int) error {
		_, err := m.Publish(t.Context(), learner.PublishInput{Run: h.Ref, Step: step})
		return err
	}
	runtest.WantFault(t, publish(0), fault.NotFound, "no policy 0")
	h.StoreBatches(t, 1)
	runtest.Play(t, h.Store, &runtest.Fate{}, true, h.Script(t, 1))
	for _, step := range []int{-1, 2, 99} {
		runtest.WantFault(t, publish(step), fault.NotFound, fmt.Sprint("no policy ", step))
	}
	for _, step := range []int{0, 1} {
		if err := publish(step); err != nil {
			t.Errorf("policy %d: %v", step, err)
		}
	}
	if len(m.Learners) != 0 {
		t.Error("a look-up took the device")
	}
	_, err := m.TrainStep(t.Context(), learner.StepInput{Run: h.Ref, Step: 2})
	runtest.WantFault(t, err, fault.NotFound, "no batch of step 2")
}

// TestSupervisedPasses: each dialogue once in a pass, in a new order in the next.
func TestSupervisedPasses(t *testing.T) {
	h := runtest.New(t, map[string]string{"sft.steps": "5"}) // of 4, over 10 dialogues
	m := runtest.Boot(h.Store, &runtest.Fate{})
	if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 5}); err != nil {
		t.Fatal(err)
	}
	taught := m.Learners[0].Taught
	for pass := range 2 {
		sorted := slices.Sorted(slices.Values(taught[10*pass : 10*pass+10]))
		if diff := cmp.Diff(sorted, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); diff != "" {
			t.Errorf("pass %d: got -, want +\n%s", pass+1, diff)
		}
	}
	if slices.Equal(taught[:10], taught[10:]) || len(taught) != 20 {
		t.Errorf("both passes have one order: %v", taught)
	}
}

// TestDivergedUpdateIsReported: the error is final, of one line, and names the
// report, which is there.
func TestDivergedUpdateIsReported(t *testing.T) {
	h := runtest.New(t, nil)
	m := runtest.Boot(h.Store, &runtest.Fate{})
	if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 2}); err != nil {
		t.Fatal(err)
	}
	m.Learners[0].Diverges = &trainer.DivergedError{Report: trainer.Divergence{Step: 3, GradNorm: trainer.Number(math.Inf(1)), Cause: "by a test"}}
	_, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, From: 2, To: 4})
	key := h.Layout.Diverged(3)
	runtest.WantFault(t, err, fault.Diverged, "gradient norm +Inf, by a test; report in "+h.Store.Locate(key))
	var stored struct {
		GradNorm any `json:"grad_norm"`
		Cause    string
	}
	if err := blob.ReadJSON(t.Context(), h.Store, key, &stored); err != nil || stored.Cause != "by a test" || stored.GradNorm != "+Inf" {
		t.Errorf("stored %+v, error %v", stored, err)
	}
}

// TestFailedDeviceIsOpenedAnew: after a failure of the device the next attempt makes another
// learner, and nothing is lost. A failure of any other kind keeps the one that is there.
func TestFailedDeviceIsOpenedAnew(t *testing.T) {
	for want, failure := range map[int]error{
		2: &trainer.GraphError{Op: "sft update", Err: errors.New("the device is gone")},
		1: errors.New("the store is slow"),
	} {
		h := runtest.New(t, nil)
		m := runtest.Boot(h.Store, &runtest.Fate{})
		if _, err := m.TrainSFT(t.Context(), learner.SFTInput{Run: h.Ref, To: 2, Save: true}); err != nil {
			t.Fatal(err)
		}
		m.Learners[0].Diverges = failure
		in := learner.SFTInput{Run: h.Ref, From: 2, To: 4}
		if _, err := m.TrainSFT(t.Context(), in); !errors.Is(err, failure) || fault.Of(err) != "" {
			t.Fatalf("error %v of kind %q, want %v", err, fault.Of(err), failure)
		}
		m.Learners[0].Diverges = nil
		if _, err := m.TrainSFT(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if len(m.Learners) != want || m.Learners[0].Closed != (want > 1) {
			t.Errorf("%v: %d learners, the first closed: %v; want %d", failure, len(m.Learners), m.Learners[0].Closed, want)
		}
	}
}
