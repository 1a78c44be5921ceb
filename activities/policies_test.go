package activities_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/trainer/checkpoint"
)

var sixSteps = []int{1, 2, 3, 4, 5, 6}

// newPruned has the batches of a run that keeps few policies.
func newPruned(t *testing.T, set map[string]string) *house {
	t.Helper()
	all := map[string]string{"checkpoint.keep_policies": "2"}
	maps.Copy(all, set)
	h := newHouse(t, all)
	h.withBatches(t, sixSteps...)
	return h
}

// policiesOf lists the policies of a run, and fails the test over what is left of others.
func policiesOf(t *testing.T, store blob.Store, layout artifact.Layout) []int64 {
	t.Helper()
	stored, err := artifact.StoredPolicies(t.Context(), store, layout)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, p := range stored {
		if !p.Whole || len(p.Files) == 0 {
			t.Errorf("policy %d is there by half: %+v", p.Version, p)
		}
		out = append(out, p.Version)
	}
	return out
}

// TestPoliciesThatStay: those that the configuration keeps, and what each rule adds.
func TestPoliciesThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		set    map[string]string
		before func(t *testing.T, h *house)
		want   []int64
	}{
		"all":                 {map[string]string{"checkpoint.keep_policies": "0"}, nil, []int64{0, 1, 2, 3, 4, 5, 6}},
		"newest, stage ends":  {nil, nil, []int64{0, 4, 5, 6}},
		"newest three":        {map[string]string{"checkpoint.keep_policies": "3"}, nil, []int64{0, 4, 5, 6}},
		"newest five":         {map[string]string{"checkpoint.keep_policies": "5"}, nil, []int64{0, 2, 3, 4, 5, 6}},
		"of kept checkpoints": {map[string]string{"checkpoint.keep": "3"}, nil, []int64{0, 2, 4, 5, 6}},
		"evaluated": {nil, func(t *testing.T, h *house) {
			put(t, h.store, h.layout.Eval(1, "final", 3), "{}")
		}, []int64{0, 3, 4, 5, 6}},
		"being evaluated": {nil, func(t *testing.T, h *house) {
			put(t, h.store, h.layout.EvalGroup(1, "final", 3, "greedy", "p1"), "{}")
		}, []int64{0, 3, 4, 5, 6}},
		"good for a schedule": {nil, func(t *testing.T, h *house) {
			put(t, h.store, artifact.Schedule{ID: "nightly"}.Good(), `{"run_id": "demo", "policy": {"version": 1}}`)
			put(t, h.store, artifact.Schedule{ID: "other"}.Good(), `{"run_id": "else", "policy": {"version": 2}}`)
		}, []int64{0, 1, 4, 5, 6}},
		"pinned": {nil, func(t *testing.T, h *house) {
			put(t, h.store, h.layout.Checkpoints()+"/pins/000007.json", `{"step": 7}`)
		}, []int64{0, 3, 4, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPruned(t, c.set)
			if c.before != nil {
				c.before(t, h)
			}
			play(t, h.store, &fate{}, false, h.script(t, sixSteps...))
			if diff := cmp.Diff(policiesOf(t, h.store, h.layout), c.want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestDeathAtAnyMomentKeepsTheSamePolicies, and a step always finds the policy
// that it samples from, whole.
func TestDeathAtAnyMomentKeepsTheSamePolicies(t *testing.T) {
	h := newPruned(t, nil)
	content := dump(t, h.store)
	var store *memblob.Store
	script := h.script(t, sixSteps...)
	for i, step := range sixSteps {
		train := script[3+i]
		script[3+i] = func(m *machine) error {
			policy, ok, err := artifact.Lookup[run.Policy](t.Context(), store, h.layout.PolicyRef(int64(step-1)))
			if err != nil || !ok {
				t.Fatalf("step %d: policy %d is gone (%v)", step, step-1, err)
			}
			if _, err := checkpoint.LoadWeights(t.Context(), store, policy.Ref); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			return train(m)
		}
	}
	undisturbed := fate{}
	store = fill(t, content)
	play(t, store, &undisturbed, false, script)
	want := durable(t, store)
	deletes := 0
	for _, restart := range []bool{true, false} {
		for at := 1; at <= undisturbed.count; at++ {
			moment := undisturbed.names[at-1]
			if restart && !writes(moment) {
				continue // as in dieAnywhere
			}
			if strings.Contains(moment, "delete "+h.layout.Dir()+"/policies/") {
				deletes++
			}
			f := fate{at: at}
			store = fill(t, content)
			play(t, store, &f, restart, script)
			if got := durable(t, store); !maps.Equal(got, want) {
				t.Fatalf("death %s, new process %v: got -, want +\n%s", moment, restart, cmp.Diff(got, want))
			}
		}
	}
	if deletes < 2*3*3 {
		t.Errorf("%d deaths among the deletes of policies, want each of three policies' several", deletes)
	}
}

// TestHalfDeletedPolicyIsNone: whatever deletes are made, no reader takes what is
// left for a policy.
func TestHalfDeletedPolicyIsNone(t *testing.T) {
	h := newPruned(t, nil)
	script := h.script(t, sixSteps...)
	play(t, h.store, &fate{}, false, script[:6]) // up to step 3
	content := dump(t, h.store)
	f := fate{}
	play(t, fill(t, content), &f, false, script[6:7])
	for at, moment := range f.names {
		if !strings.Contains(moment, "delete "+h.layout.Dir()+"/policies/") {
			continue
		}
		store := fill(t, content)
		if err := script[6](boot(store, &fate{at: at + 1})); err == nil {
			t.Fatalf("no death %s", moment)
		}
		stored, err := artifact.StoredPolicies(t.Context(), store, h.layout)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range stored {
			_, err := run.PublishedPolicy(t.Context(), store, "demo", p.Version)
			if (err == nil) != p.Whole || err != nil && !fault.IsUsers(err) {
				t.Errorf("death %s: policy %d, whole %v: error %v", moment, p.Version, p.Whole, err)
			}
		}
	}
}

// lookingUp is a store that calls looked before it lists the schedules, which is
// when a trainer decides which policies go.
type lookingUp struct {
	blob.Store
	looked func()
}

func (l lookingUp) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if prefix == artifact.ScheduleRoot+"/" {
		l.looked()
	}
	return l.Store.List(ctx, prefix)
}

// TestFencedTrainerDeletesNoPolicy: another one takes the lease between the
// decision and the deletes.
func TestFencedTrainerDeletesNoPolicy(t *testing.T) {
	h := newPruned(t, nil)
	script := h.script(t, sixSteps...)
	play(t, h.store, &fate{}, false, script[:6]) // up to step 3
	before := policiesOf(t, h.store, h.layout)
	m := boot(h.store, &fate{})
	m.Learner.Store = lookingUp{h.store, func() {
		_, err := checkpoint.Acquire(t.Context(), h.store, h.layout.Head(), "another", func(context.Context) (int64, error) { return 0, nil })
		if err != nil {
			t.Error(err)
		}
	}}
	if err := script[6](m); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	if diff := cmp.Diff(policiesOf(t, h.store, h.layout), append(before, 4)); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
	play(t, h.store, &fate{}, false, script)
	if diff := cmp.Diff(policiesOf(t, h.store, h.layout), []int64{0, 4, 5, 6}); diff != "" {
		t.Errorf("in the end: got -, want +\n%s", diff)
	}
}

// TestSlowSavesKeepTheSamePolicies: which policies stay does not depend on how
// far training is when a save comes to its end.
func TestSlowSavesKeepTheSamePolicies(t *testing.T) {
	h := newPruned(t, map[string]string{"checkpoint.best": "1"})
	content := dump(t, h.store)
	script := h.script(t, sixSteps...)
	play(t, h.store, &fate{}, false, script)
	want := durable(t, h.store)
	store := fill(t, content)
	m := boot(store, &fate{})
	m.Learner.Store = store // moments of two goroutines have no order
	m.Learner.Background = func(task func()) {
		go func() {
			time.Sleep(20 * time.Millisecond)
			task()
		}()
	}
	for _, activity := range script {
		if err := activity(m); err != nil {
			t.Fatal(err)
		}
	}
	m.Learner.Close(time.Minute)
	if diff := cmp.Diff(durable(t, store), want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestLostCheckpointsCostNoPolicy: a trainer that makes checkpoints again, behind
// the newest policy, deletes none whose checkpoint is yet to come.
func TestLostCheckpointsCostNoPolicy(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep_policies": "2", "checkpoint.keep": "3", "stages[0].until.steps": "12"})
	steps := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	h.withBatches(t, steps...)
	script := h.script(t, steps...)
	last := len(script) - 1
	play(t, h.store, &fate{}, false, script[:last])
	for _, step := range []int{4, 6, 8} {
		key := fmt.Sprintf("%s/step-%06d/manifest.json", h.layout.Checkpoints(), h.plan.SFTSteps+step)
		if err := h.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	play(t, h.store, &fate{}, false, script[last:])
	if diff := cmp.Diff(policiesOf(t, h.store, h.layout), []int64{0, 6, 8, 9, 10}); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestDroppedPoliciesAreNamed: who asks for one learns which there are.
func TestDroppedPoliciesAreNamed(t *testing.T) {
	h := newPruned(t, nil)
	m := play(t, h.store, &fate{}, false, h.script(t, sixSteps...))
	for version, want := range map[int64]string{
		2:  "run demo has no policy 2 any more (checkpoint.keep_policies): it has 0, 4-6, the nearest are 0 and 4",
		9:  "run demo has no policy 9: it has 0, 4-6, the nearest is 6",
		-1: "run demo has no policy -1: it has 0, 4-6, the nearest is 0",
	} {
		_, err := run.PublishedPolicy(t.Context(), h.store, "demo", version)
		if err == nil || err.Error() != want || !fault.IsUsers(err) {
			t.Errorf("export: got %v, want %s", err, want)
		}
		_, err = m.PublishPolicy(t.Context(), activities.PublishInput{Run: h.run, Step: int(version)})
		wantKind(t, err, string(fault.NotFound), want)
	}
	for _, start := range []string{"demo@2", "demo@9"} {
		_, err := openRun(t, h.control, run.Input{RunID: "child", Config: asString(t, startConfig), Set: map[string]string{"model.run": start}})
		wantRefusal(t, err, fmt.Sprintf("model.run: is %s, but run demo has no policy", start))
	}
}

// TestPolicyThatVanishesBeforeTheCopy: a warm start that was accepted, and whose
// policy was deleted before its data was prepared, says which there are.
func TestPolicyThatVanishesBeforeTheCopy(t *testing.T) {
	parent := newStart(t, writeModel(t, startModel(), nil))
	parent.learn(t)
	plan, err := openRun(t, parent.control, run.Input{
		RunID: "child", Config: asString(t, startConfig), Set: map[string]string{"model.run": "demo@0", "sft.steps": "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range dump(t, parent.store) {
		if strings.HasPrefix(key, parent.layout.Policy(0)) {
			if err := parent.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, parent.store, parent.layout.PolicyRef(4), "{}")
	_, err = parent.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: run.Ref{RunID: plan.RunID, Config: plan.Config}})
	wantRefusal(t, err, "model.run: is demo@0, but run demo has no policy 0: it has 4, the nearest is 4")
}
