package activities_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// machine is a trainer process on a store.
type machine struct {
	*activities.Trainer
	learners []*chain
}

func boot(store blob.Store, f *fate) *machine {
	m := &machine{}
	m.Trainer = &activities.Trainer{Learner: learner.NewService(learner.Config{
		Store: mortal{store, f}, Now: still, Background: func(task func()) { task() }, // moments have an order
		New: func(r *run.Loaded) (learner.Learner, error) {
			m.learners = append(m.learners, &chain{fate: f, model: r.Model})
			return m.learners[len(m.learners)-1], nil
		},
	})}
	return m
}

// withBatches stores a batch for each given step; one in three has no sample.
func (h *house) withBatches(t testing.TB, steps ...int) {
	t.Helper()
	for _, step := range steps {
		var built run.BuiltBatch
		if step%3 != 0 {
			data, err := json.Marshal(rl.Batch{Step: step, Samples: []rl.Sample{{ProblemID: fmt.Sprint("p", step)}}})
			if err != nil {
				t.Fatal(err)
			}
			put(t, h.store, h.layout.Batch(step), string(data))
			built = run.BuiltBatch{Batch: blob.RefOf(h.layout.Batch(step), data), Samples: 1}
		}
		built.Stats.RewardMean = 1 / float64(step) // the best checkpoint is the first one, which stays in any case
		if _, err := blob.PutJSON(t.Context(), h.store, h.layout.BatchStats(step), built, blob.Always); err != nil {
			t.Fatal(err)
		}
	}
}

// stepInput asks for the update of a step by the batch that is stored.
func (h *house) stepInput(t testing.TB, step int, save bool) activities.TrainStepInput {
	t.Helper()
	built, _, err := artifact.Lookup[run.BuiltBatch](t.Context(), h.store, h.layout.BatchStats(step))
	if err != nil {
		t.Fatal(err)
	}
	return activities.TrainStepInput{Run: h.run, Step: step, Batch: built.Batch, Save: save}
}

// script is the activities that a trainer gets in a run, in order.
func (h *house) script(t testing.TB, steps ...int) []func(*machine) error {
	sft := func(from, to int) func(*machine) error {
		return func(m *machine) error {
			_, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, From: from, To: to, Save: true})
			return err
		}
	}
	script := []func(*machine) error{sft(0, 2), sft(2, 4), func(m *machine) error {
		_, err := m.PublishPolicy(t.Context(), activities.PublishInput{Run: h.run})
		return err
	}}
	for _, step := range steps {
		script = append(script, func(m *machine) error {
			_, err := m.TrainStep(t.Context(), h.stepInput(t, step, step%2 == 0))
			return err
		})
	}
	return script
}

// play carries a script out. When the machine fails, Temporal repeats the
// activity: on a new process after a death, on the same one after an error.
func play(t testing.TB, store blob.Store, f *fate, restart bool, script []func(*machine) error) *machine {
	t.Helper()
	m := boot(store, f)
	late := false // a save that failed in the background is told by the next activity
	for _, activity := range script {
		for err := activity(m); err != nil; err = activity(m) {
			if !f.dead && !late {
				t.Fatalf("an activity fails without a fault: %v", err)
			}
			late = f.dead && !restart
			f.dead = false
			endCollections(t, store)
			if restart {
				m = boot(store, f)
			}
		}
	}
	return m
}

// endCollections is the time that passes until nobody waits any more for a
// garbage collection whose process died.
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

// TestDeathAtAnyMomentChangesNothing kills the trainer at each of its writes and
// learner calls in turn: before and after them, with and without the process.
func TestDeathAtAnyMomentChangesNothing(t *testing.T) {
	t.Run("recipe", func(t *testing.T) { dieAnywhere(t, newHouse(t, nil)) })
	t.Run("with a reference policy", func(t *testing.T) {
		dieAnywhere(t, newHouse(t, map[string]string{"rl.loss.kl.coefficient": "0.1"}))
	})
	t.Run("from a checkpoint", func(t *testing.T) {
		dir := writeModel(t, startModel(), nil)
		h := prepareConfig(t, memblob.New(), "demo", fromCheckpoint, map[string]string{"model.path": dir})
		if err := os.RemoveAll(dir); err != nil { // no process may need it any more
			t.Fatal(err)
		}
		dieAnywhere(t, h)
	})
}

// fromCheckpoint is the test configuration for model.path.
var fromCheckpoint = strings.Replace(testConfig,
	"{hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: 400}", "{max_context: 480}", 1)

func dieAnywhere(t *testing.T, h *house) {
	t.Helper()
	steps := []int{1, 2, 3, 5} // step 3 has no sample, step 4 was never made, 5 begins a stage
	h.withBatches(t, steps...)
	content := dump(t, h.store)
	script := h.script(t, steps...)

	undisturbed := fate{}
	m := play(t, h.store, &undisturbed, false, script)
	want := durable(t, h.store)
	if m.learners[0].rooms == 0 {
		t.Fatal("no save takes the memory of an earlier one")
	}
	if undisturbed.count < 80 {
		t.Fatalf("only %d moments: the world is not watched", undisturbed.count)
	}
	for _, restart := range []bool{true, false} {
		for at := 1; at <= undisturbed.count; at++ {
			if restart && !writes(undisturbed.names[at-1]) {
				continue // a process that dies here leaves the same as before the next write
			}
			f := fate{at: at}
			store := fill(t, content)
			play(t, store, &f, restart, script)
			if got := durable(t, store); !maps.Equal(got, want) {
				t.Fatalf("death %s, new process %v: got -, want +\n%s", f.names[at-1], restart, cmp.Diff(got, want))
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
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 3, 4, 5, 6)
	f := fate{}
	play(t, h.store, &f, false, h.script(t, 1, 2, 3, 4, 5, 6))
	var got []string
	for _, name := range f.names {
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
	h := newHouse(t, map[string]string{"rl.loss.kl.coefficient": "0.1"})
	h.withBatches(t, 1, 2, 4, 5)
	script := h.script(t, 1, 2, 4, 5)
	m := boot(h.store, &fate{})
	do := func(activities ...func(*machine) error) [32]byte {
		t.Helper()
		for _, activity := range activities {
			if err := activity(m); err != nil {
				t.Fatal(err)
			}
		}
		return m.learners[0].state
	}
	afterSFT := do(script[:3]...)
	do(script[3:5]...) // the second of these steps leaves a checkpoint
	if m.learners[0].reference != afterSFT {
		t.Error("the first stage does not refer to the policy after SFT")
	}
	m = boot(h.store, &fate{})
	begin := do(script[5])
	if m.learners[0].reference != afterSFT {
		t.Error("a new process refers to another policy")
	}
	do(script[6])
	if m.learners[0].reference != begin || begin == afterSFT {
		t.Error("the second stage does not refer to the policy at its start")
	}
}

// TestStepsThatNeverWereAreLeftOut: a stage that was stopped leaves steps
// without a batch, and the next stage goes on after them.
func TestStepsThatNeverWereAreLeftOut(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 5)
	content := dump(t, h.store)
	script := h.script(t, 1, 5)
	m := play(t, h.store, &fate{}, false, script)
	if n := m.learners[0].updates; n != 6 {
		t.Errorf("%d updates, want 4 of SFT and 2 of RL", n)
	}
	again := fill(t, content)
	for _, activity := range script { // each on a new process
		if err := activity(boot(again, &fate{})); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(durable(t, again), durable(t, h.store)); diff != "" {
		t.Errorf("after restarts: got -, want +\n%s", diff)
	}
}

// TestTwoRunsOnOneTrainer: runs that take turns get what each gets alone.
func TestTwoRunsOnOneTrainer(t *testing.T) {
	a := newHouse(t, nil)
	b := prepare(t, a.store, "other", map[string]string{"seed": "9"})
	a.withBatches(t, 1, 2)
	b.withBatches(t, 1, 2)
	alone := fill(t, dump(t, a.store))
	scripts := [][]func(*machine) error{a.script(t, 1, 2), b.script(t, 1, 2)}
	var turns []func(*machine) error
	for i := range scripts[0] {
		turns = append(turns, scripts[0][i], scripts[1][i])
	}
	m := play(t, a.store, &fate{}, false, turns)
	for _, script := range scripts {
		play(t, alone, &fate{}, true, script)
	}
	if diff := cmp.Diff(durable(t, a.store), durable(t, alone)); diff != "" {
		t.Errorf("interleaved: got -, want alone +\n%s", diff)
	}
	open := 0
	for _, l := range m.learners {
		if !l.closed {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d learners are open, want the one of the last run", open)
	}
}

// TestCheckpointsThatStay: the newest, the last of SFT and the last of each stage.
func TestCheckpointsThatStay(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 3, 4, 5, 6)
	script := h.script(t, 1, 2, 3, 4, 5, 6)
	stay := func(activities int) []int {
		play(t, h.store, &fate{}, false, script[:activities])
		entries, err := checkpoint.List(t.Context(), h.store, h.layout.Checkpoints())
		if err != nil {
			t.Fatal(err)
		}
		var cursors []int
		for _, e := range entries {
			cursors = append(cursors, e.Step)
		}
		return cursors
	}
	for _, c := range []struct {
		activities int
		want       []int
	}{
		{1, []int{2}}, {2, []int{4}},
		{5, []int{4, 6}},     // step 2, keep = 1
		{7, []int{4, 8}},     // step 4 ends stage 1
		{9, []int{4, 8, 10}}, // step 6 ends stage 2
	} {
		if diff := cmp.Diff(stay(c.activities), c.want); diff != "" {
			t.Errorf("after %d activities: got -, want +\n%s", c.activities, diff)
		}
	}
	shards, err := h.store.List(t.Context(), "cas/")
	if err != nil || len(shards) != 3 {
		t.Errorf("%d shards of 3 checkpoints (%v)", len(shards), err)
	}
}

// TestUnreadableCheckpointIsPassedOver: what an older one lacks is made again.
func TestUnreadableCheckpointIsPassedOver(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 3)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	healthy := dump(t, h.store)
	next := h.script(t, 3)[3:]
	play(t, h.store, &fate{}, true, next)
	want := dump(t, h.store)
	damage := map[string]func(map[string]string, string){
		"missing": func(content map[string]string, key string) { delete(content, key) },
		"changed": func(content map[string]string, key string) { content[key] = "x" + content[key][1:] },
	}
	for name, harm := range damage {
		for n := 1; n <= 2; n++ { // the newest, and both
			content := maps.Clone(healthy)
			left := n
			for _, cursor := range []int{6, 4} {
				var m struct{ Shards map[string][]blob.Ref }
				manifest := fmt.Sprintf("%s/step-%06d/manifest.json", h.layout.Checkpoints(), cursor)
				if err := json.Unmarshal([]byte(content[manifest]), &m); err != nil {
					t.Fatal(err)
				}
				if left > 0 {
					harm(content, m.Shards["weights"][0].Key)
					left--
				}
			}
			store := fill(t, content)
			play(t, store, &fate{}, true, next)
			key := h.layout.PolicyRef(3)
			if got := dump(t, store)[key]; got == "" || got != want[key] {
				t.Errorf("%d %s: policy 3 is %s, want %s", n, name, got, want[key])
			}
		}
	}
}

// TestTrainerThatIsAheadGoesBack: results that are asked for again and were lost
// are made again, from a state that has moved on.
func TestTrainerThatIsAheadGoesBack(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 3, 4, 5)
	script := h.script(t, 1, 2, 3, 4, 5)
	m := play(t, h.store, &fate{}, false, script)
	want := durable(t, h.store)
	for _, key := range []string{h.layout.PolicyRef(0), h.layout.PolicyRef(1), h.layout.TrainResult(1), h.layout.TrainResult(4), h.layout.SFTResult(2)} {
		if err := h.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{6, 3, 2, 0} { // steps 4 and 1, policy 0, the first chunk of SFT
		if err := script[n](m); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(durable(t, h.store), want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestAnotherTrainerWentOn: a worker whose state is behind takes the other's
// checkpoint instead of repeating its updates.
func TestAnotherTrainerWentOn(t *testing.T) {
	h := newHouse(t, nil)
	h.withBatches(t, 1, 2, 4)
	script := h.script(t, 1, 2, 4)
	f := fate{}
	m := boot(h.store, &f)
	if err := script[0](m); err != nil {
		t.Fatal(err)
	}
	play(t, h.store, &fate{}, true, script[1:5])
	from := len(f.names)
	if err := script[5](m); err != nil {
		t.Fatal(err)
	}
	updates := slices.DeleteFunc(f.names[from:], func(s string) bool { return s != "after update" && s != "after sft" })
	if len(updates) != 1 {
		t.Errorf("%d updates, want that of step 4 alone: %v", len(updates), updates)
	}
}

func TestWhatARunDoesNotHaveIsNotFound(t *testing.T) {
	h := newHouse(t, nil)
	m := boot(h.store, &fate{})
	publish := func(step int) error {
		_, err := m.PublishPolicy(t.Context(), activities.PublishInput{Run: h.run, Step: step})
		return err
	}
	wantKind(t, publish(0), string(fault.NotFound), "no policy 0")
	h.withBatches(t, 1)
	play(t, h.store, &fate{}, true, h.script(t, 1))
	for _, step := range []int{-1, 2, 99} {
		wantKind(t, publish(step), string(fault.NotFound), fmt.Sprint("no policy ", step))
	}
	for _, step := range []int{0, 1} {
		if err := publish(step); err != nil {
			t.Errorf("policy %d: %v", step, err)
		}
	}
	if len(m.learners) != 0 {
		t.Error("a look-up took the device")
	}
	_, err := m.TrainStep(t.Context(), activities.TrainStepInput{Run: h.run, Step: 2})
	wantKind(t, err, string(fault.NotFound), "no batch of step 2")
}

// wantKind checks type, text and that Temporal will not retry.
func wantKind(t testing.TB, err error, kind, text string) {
	t.Helper()
	app, ok := err.(*temporal.ApplicationError) //nolint:errorlint // Temporal looks at the outermost error only
	if !ok || app.Type() != kind || !app.NonRetryable() || !strings.Contains(app.Message(), text) {
		t.Errorf("error %v (%T), want a final one of type %s saying %q", err, err, kind, text)
	}
}

// TestSupervisedPasses: each dialogue once in a pass, in a new order in the next.
func TestSupervisedPasses(t *testing.T) {
	h := newHouse(t, map[string]string{"sft.steps": "5"}) // of 4, over 10 dialogues
	m := boot(h.store, &fate{})
	if _, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, To: 5}); err != nil {
		t.Fatal(err)
	}
	taught := m.learners[0].taught
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
	h := newHouse(t, nil)
	m := boot(h.store, &fate{})
	if _, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, To: 2}); err != nil {
		t.Fatal(err)
	}
	m.learners[0].diverges = &trainer.DivergedError{Report: trainer.Divergence{Step: 3, GradNorm: trainer.Number(math.Inf(1)), Cause: "by a test"}}
	_, err := m.TrainSFT(t.Context(), activities.TrainSFTInput{Run: h.run, From: 2, To: 4})
	key := h.layout.Diverged(3)
	wantKind(t, err, string(fault.Diverged), "gradient norm +Inf, by a test; report in "+h.store.Locate(key))
	var stored struct {
		GradNorm any `json:"grad_norm"`
		Cause    string
	}
	if err := blob.ReadJSON(t.Context(), h.store, key, &stored); err != nil || stored.Cause != "by a test" || stored.GradNorm != "+Inf" {
		t.Errorf("stored %+v, error %v", stored, err)
	}
}
