package learner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/trainer/checkpoint"
)

var sixSteps = []int{1, 2, 3, 4, 5, 6}

// newPruned has the batches of a run that keeps few policies.
func newPruned(t *testing.T, set map[string]string) *runtest.Run {
	t.Helper()
	all := map[string]string{"checkpoint.keep_policies": "2"}
	maps.Copy(all, set)
	h := runtest.New(t, all)
	h.StoreBatches(t, sixSteps...)
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
		before func(t *testing.T, h *runtest.Run)
		want   []int64
	}{
		"all":                 {map[string]string{"checkpoint.keep_policies": "0"}, nil, []int64{0, 1, 2, 3, 4, 5, 6}},
		"newest, stage ends":  {nil, nil, []int64{0, 4, 5, 6}},
		"newest three":        {map[string]string{"checkpoint.keep_policies": "3"}, nil, []int64{0, 4, 5, 6}},
		"newest five":         {map[string]string{"checkpoint.keep_policies": "5"}, nil, []int64{0, 2, 3, 4, 5, 6}},
		"of kept checkpoints": {map[string]string{"checkpoint.keep": "3"}, nil, []int64{0, 2, 4, 5, 6}},
		"evaluated": {nil, func(t *testing.T, h *runtest.Run) {
			runtest.Put(t, h.Store, h.Layout.Eval(1, "final", 3).Result(), "{}")
		}, []int64{0, 3, 4, 5, 6}},
		"being evaluated": {nil, func(t *testing.T, h *runtest.Run) {
			runtest.Put(t, h.Store, h.Layout.Eval(1, "final", 3).Group("greedy", "p1"), "{}")
		}, []int64{0, 3, 4, 5, 6}},
		"good for a schedule": {nil, func(t *testing.T, h *runtest.Run) {
			runtest.Put(t, h.Store, artifact.Schedule{ID: "nightly"}.Good(), `{"run_id": "demo", "policy": {"version": 1}}`)
			runtest.Put(t, h.Store, artifact.Schedule{ID: "other"}.Good(), `{"run_id": "else", "policy": {"version": 2}}`)
		}, []int64{0, 1, 4, 5, 6}},
		"pinned": {nil, func(t *testing.T, h *runtest.Run) {
			runtest.Put(t, h.Store, h.Layout.Checkpoints()+"/pins/000007.json", `{"step": 7}`)
		}, []int64{0, 3, 4, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPruned(t, c.set)
			if c.before != nil {
				c.before(t, h)
			}
			runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, sixSteps...))
			if diff := cmp.Diff(policiesOf(t, h.Store, h.Layout), c.want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestDeathAtAnyMomentKeepsTheSamePolicies, and a step always finds the policy
// that it samples from, whole.
func TestDeathAtAnyMomentKeepsTheSamePolicies(t *testing.T) {
	for name, set := range map[string]map[string]string{"files": nil, "shards": {"checkpoint.shard_policies": "1"}} {
		t.Run(name, func(t *testing.T) { dieAmongPolicies(t, set) })
	}
}

func dieAmongPolicies(t *testing.T, set map[string]string) {
	h := newPruned(t, set)
	content := runtest.Dump(t, h.Store)
	var store *memblob.Store
	script := h.Script(t, sixSteps...)
	for i, step := range sixSteps {
		train := script[3+i]
		script[3+i] = func(m *runtest.Machine) error {
			policy, ok, err := artifact.Lookup[run.Policy](t.Context(), store, h.Layout.Policy(int64(step-1)).Ref())
			if err != nil || !ok {
				t.Fatalf("step %d: policy %d is gone (%v)", step, step-1, err)
			}
			if _, err := checkpoint.LoadWeights(t.Context(), store, policy.Ref); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			return train(m)
		}
	}
	undisturbed := runtest.Fate{}
	store = runtest.Fill(t, content)
	runtest.Play(t, store, &undisturbed, false, script)
	want := runtest.Durable(t, store)
	deletes := 0
	for _, restart := range []bool{true, false} {
		for at := 1; at <= undisturbed.Count; at++ {
			moment := undisturbed.Names[at-1]
			if restart && !writes(moment) {
				continue // as in dieAnywhere
			}
			if strings.Contains(moment, "delete "+h.Layout.Dir()+"/policies/") {
				deletes++
			}
			f := runtest.Fate{At: at}
			store = runtest.Fill(t, content)
			runtest.Play(t, store, &f, restart, script)
			if got := runtest.Durable(t, store); !maps.Equal(got, want) {
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
	script := h.Script(t, sixSteps...)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script[:6]) // up to step 3
	content := runtest.Dump(t, h.Store)
	f := runtest.Fate{}
	runtest.Play(t, runtest.Fill(t, content), &f, false, script[6:7])
	for at, moment := range f.Names {
		if !strings.Contains(moment, "delete "+h.Layout.Dir()+"/policies/") {
			continue
		}
		store := runtest.Fill(t, content)
		if err := script[6](runtest.Boot(store, &runtest.Fate{At: at + 1})); err == nil {
			t.Fatalf("no death %s", moment)
		}
		stored, err := artifact.StoredPolicies(t.Context(), store, h.Layout)
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
	script := h.Script(t, sixSteps...)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script[:6]) // up to step 3
	before := policiesOf(t, h.Store, h.Layout)
	m := runtest.Boot(h.Store, &runtest.Fate{})
	m.Store = lookingUp{h.Store, func() {
		_, err := checkpoint.Acquire(t.Context(), h.Store, h.Layout.Head(), "another", func(context.Context) (int64, error) { return 0, nil })
		if err != nil {
			t.Error(err)
		}
	}}
	if err := script[6](m); !errors.Is(err, checkpoint.ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	if diff := cmp.Diff(policiesOf(t, h.Store, h.Layout), append(before, 4)); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script)
	if diff := cmp.Diff(policiesOf(t, h.Store, h.Layout), []int64{0, 4, 5, 6}); diff != "" {
		t.Errorf("in the end: got -, want +\n%s", diff)
	}
}

// TestSlowSavesKeepTheSamePolicies: which policies stay does not depend on how
// far training is when a save comes to its end.
func TestSlowSavesKeepTheSamePolicies(t *testing.T) {
	h := newPruned(t, map[string]string{"checkpoint.best": "1"})
	content := runtest.Dump(t, h.Store)
	script := h.Script(t, sixSteps...)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script)
	want := runtest.Durable(t, h.Store)
	store := runtest.Fill(t, content)
	m := runtest.Boot(store, &runtest.Fate{})
	m.Store = store // moments of two goroutines have no order
	m.Background = func(task func()) {
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
	m.Close(time.Minute)
	if diff := cmp.Diff(runtest.Durable(t, store), want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestLostCheckpointsCostNoPolicy: a trainer that makes checkpoints again, behind
// the newest policy, deletes none whose checkpoint is yet to come.
func TestLostCheckpointsCostNoPolicy(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep_policies": "2", "checkpoint.keep": "3", "stages[0].until.steps": "12"})
	steps := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	h.StoreBatches(t, steps...)
	script := h.Script(t, steps...)
	last := len(script) - 1
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script[:last])
	for _, step := range []int{4, 6, 8} {
		key := fmt.Sprintf("%s/step-%06d/manifest.json", h.Layout.Checkpoints(), h.Plan.SFTSteps+step)
		if err := h.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Play(t, h.Store, &runtest.Fate{}, false, script[last:])
	if diff := cmp.Diff(policiesOf(t, h.Store, h.Layout), []int64{0, 6, 8, 9, 10}); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestCheckpointsThatStay: the newest, the last of SFT and the last of each stage.
func TestCheckpointsThatStay(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3, 4, 5, 6)
	script := h.Script(t, 1, 2, 3, 4, 5, 6)
	stay := func(activities int) []int {
		runtest.Play(t, h.Store, &runtest.Fate{}, false, script[:activities])
		entries, err := checkpoint.List(t.Context(), h.Store, h.Layout.Checkpoints())
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
	shards, err := h.Store.List(t.Context(), "cas/")
	if err != nil || len(shards) != 3 {
		t.Errorf("%d shards of 3 checkpoints (%v)", len(shards), err)
	}
}

// TestDamageThatARetentionMeetsIsNamed: which checkpoints stay depends on the figures of
// old steps. Where those cannot be read, the error says what is to be made again.
func TestDamageThatARetentionMeetsIsNamed(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2, 3, 4, 5)
	script := h.Script(t, 1, 2, 3, 4, 5)
	m := runtest.Boot(h.Store, &runtest.Fate{})
	runtest.CarryOut(t, m, script[:6])
	damaged := h.Layout.Step(1).BatchStats()
	runtest.Put(t, h.Store, damaged, `{"samples": 1`)
	var err error
	for _, activity := range script[6:] {
		if err = activity(m); err != nil {
			break
		}
	}
	if ref, ok := blob.DamagedRef(err); !ok || ref.Key != damaged {
		t.Errorf("error %v, damaged %q; want %s named, which can be made again", err, ref.Key, damaged)
	}
}

// TestDamageOfAScheduleHarmsNoRun: which policy a schedule of re-trainings starts from cannot
// be read. It may be any, so all of them stay.
func TestDamageOfAScheduleHarmsNoRun(t *testing.T) {
	h := newPruned(t, nil)
	runtest.Put(t, h.Store, artifact.Schedule{ID: "nightly"}.Good(), `{"run_id": `)
	runtest.CarryOut(t, runtest.Boot(h.Store, &runtest.Fate{}), h.Script(t, sixSteps...))
	if diff := cmp.Diff(policiesOf(t, h.Store, h.Layout), []int64{0, 1, 2, 3, 4, 5, 6}); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}
