package sampling_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

func sampleInput(t testing.TB, h *runtest.Run, stage, step int) sampling.GroupsInput {
	return sampling.GroupsInput{
		Run: h.Ref, Stage: stage, Step: step, ProblemIDs: h.Selected(t, stage, step), Policy: runtest.PolicyRef(int64(step - 1)),
	}
}

// groups is the stored groups of a step by key.
func groupsOf(t testing.TB, h *runtest.Run, step int) map[string]string {
	t.Helper()
	out := runtest.Dump(t, h.Store)
	for key := range out {
		if !strings.HasPrefix(key, h.Layout.Step(step).Groups()) {
			delete(out, key)
		}
	}
	return out
}

func TestSampledGroups(t *testing.T) {
	h := runtest.New(t, nil)
	r, engine := h.NewSampling(t)
	in := sampleInput(t, h, 1, 2)
	got, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	want := run.Sampled{Groups: 3, Trajectories: 18, Shards: got.Shards}
	if len(got.Shards) != 1 {
		t.Fatalf("%d shards, want the one that was sampled", len(got.Shards))
	}
	rewards := map[float64]int{}
	for _, id := range in.ProblemIDs {
		for i, tr := range runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.Step(2).Group(id)) {
			if tr.ProblemID != id || tr.Rollout != i || tr.Stage != 1 || tr.Step != 2 || tr.PolicyVersion != 1 {
				t.Errorf("trajectory %d of %s is %s/%d of stage %d, step %d, policy %d", i, id, tr.ProblemID, tr.Rollout, tr.Stage, tr.Step, tr.PolicyVersion)
			}
			calls, _ := tr.ToolCounts()
			want.ToolCalls += calls
			want.Tokens += tr.ResponseTokens()
			rewards[tr.Reward]++
		}
	}
	if diff := cmp.Diff(got, want); diff != "" || rewards[0] == 0 || rewards[1] == 0 || got.ToolCalls == 0 {
		t.Errorf("rewards %v; got -, want +\n%s", rewards, diff)
	}
	if diff := cmp.Diff(engine.Loads, []int64{1}); diff != "" {
		t.Errorf("loaded policies: %s", diff)
	}
	r.Close()
	if !engine.Closed {
		t.Error("the engine is left open")
	}
}

// TestSamplingResumes after a death at each write: what was stored is kept, the
// rest is the same, and nothing is half there.
func TestSamplingResumes(t *testing.T) {
	h := runtest.New(t, nil)
	prepared := runtest.Dump(t, h.Store)
	in := sampleInput(t, h, 1, 1)
	r, _ := h.NewSampling(t)
	if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); err != nil {
		t.Fatal(err)
	}
	want := groupsOf(t, h, 1)
	for at := 1; at <= 6; at++ {
		h.Store = runtest.Fill(t, prepared)
		f := runtest.Fate{At: at}
		r, _ := h.NewSampling(t)
		r.Store = runtest.Mortal{Store: h.Store, Fate: &f}
		if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); !errors.Is(err, runtest.ErrDied) {
			t.Fatalf("moment %d: error %v", at, err)
		}
		stored := groupsOf(t, h, 1)
		r, engine := h.NewSampling(t)
		got, err := r.SampleGroups(t.Context(), in, r.NewProgress())
		if err != nil || got.Reused != len(stored) || got.Groups != 3 || got.Trajectories != 18 {
			t.Errorf("death %s: %+v (%v), want %d groups reused of 3", f.Names[at-1], got, err, len(stored))
		}
		for _, req := range engine.Requests() {
			id := strings.Split(req.Session, "/")[4]
			if _, ok := stored[h.Layout.Step(1).Group(id)]; ok {
				t.Fatalf("death %s: %s was sampled again", f.Names[at-1], req.Session)
			}
		}
		if diff := cmp.Diff(groupsOf(t, h, 1), want); diff != "" {
			t.Errorf("death %s: got -, want +\n%s", f.Names[at-1], diff)
		}
	}
}

// TestDamagedGroupIsSampledAgain with the bytes that it had, and an event says so.
func TestDamagedGroupIsSampledAgain(t *testing.T) {
	h := runtest.New(t, nil)
	in := sampleInput(t, h, 1, 1)
	r, _ := h.NewSampling(t)
	if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); err != nil {
		t.Fatal(err)
	}
	key := h.Layout.Step(1).Group(in.ProblemIDs[1])
	whole := runtest.Dump(t, h.Store)
	runtest.Put(t, h.Store, key, `{"problem_id": "x"`)
	got, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil || got.Reused != 2 {
		t.Errorf("reused %d of 3 groups (%v)", got.Reused, err)
	}
	events := 0
	for name, data := range runtest.Dump(t, h.Store) {
		if strings.HasPrefix(name, h.Layout.Events().Dir()) {
			events++
		} else if data != whole[name] {
			t.Errorf("%s does not have its bytes again", name)
		}
	}
	if events != 1 {
		t.Errorf("%d events, want one of the repair", events)
	}
}

// TestBatchWithoutItsShards is made of the groups, to the same bytes.
func TestBatchWithoutItsShards(t *testing.T) {
	for name, spoil := range map[string]func(store blob.Store, key string){
		"gone": func(store blob.Store, key string) {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(store blob.Store, key string) { runtest.Put(t, store, key, "[") },
	} {
		h := runtest.New(t, nil)
		in := sampleInput(t, h, 1, 1)
		r, _ := h.NewSampling(t)
		sampled, err := r.SampleGroups(t.Context(), in, r.NewProgress())
		if err != nil {
			t.Fatal(err)
		}
		batch := sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: in.ProblemIDs, Shards: sampled.Shards}
		other := runtest.Fill(t, runtest.Dump(t, h.Store))
		want, err := sampling.BuildBatch(t.Context(), h.Store, batch)
		if err != nil {
			t.Fatal(err)
		}
		spoil(other, sampled.Shards[0].Key)
		got, err := sampling.BuildBatch(t.Context(), other, batch)
		if diff := cmp.Diff(got, want); err != nil || diff != "" {
			t.Errorf("%s (%v): got -, want +\n%s", name, err, diff)
		}
	}
}

// down is a sandbox that fails for the given problems' programs.
func down(fails func(req sandbox.Request) bool) *sandboxtest.Fake {
	return &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		if fails(req) {
			return sandbox.Result{}, sandbox.ErrUnavailable
		}
		return runtest.Python(req)
	}}
}

// TestOutageIsNoReward: rollouts that the sandbox failed are excluded, and with
// a sandbox that is down nothing is stored at all, so that it will be repeated.
func TestOutageIsNoReward(t *testing.T) {
	h := runtest.New(t, nil)
	in := sampleInput(t, h, 1, 1)
	sample := func(t *testing.T, fails func(sandbox.Request) bool) (run.Sampled, error) {
		r, _ := h.NewSampling(t)
		r.Executor = down(fails)
		var out run.Sampled
		var err error
		synctest.Test(t, func(*testing.T) { out, err = r.SampleGroups(context.Background(), in, r.NewProgress()) })
		return out, err
	}
	t.Run("down", func(t *testing.T) {
		_, err := sample(t, func(sandbox.Request) bool { return true })
		if err == nil || !strings.Contains(err.Error(), "lost all 6 trajectories") || !strings.Contains(err.Error(), sandbox.ErrUnavailable.Error()) {
			t.Errorf("error %v, want one that tells of the outage", err)
		}
		if stored := groupsOf(t, h, 1); len(stored) != 0 {
			t.Errorf("stored %v", stored)
		}
	})
	t.Run("in part", func(t *testing.T) {
		out, err := sample(t, func(req sandbox.Request) bool { return strings.Split(req.ID, "/")[5] == "0" })
		if err != nil || out.InfraErrors != 3 {
			t.Fatalf("%+v (%v), want the first rollout of 3 groups lost", out, err)
		}
		built, err := sampling.BuildBatch(t.Context(), h.Store, sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: in.ProblemIDs})
		if err != nil || built.Stats.InfraErrors != 3 || built.Stats.Trajectories != 18 {
			t.Fatalf("%+v (%v)", built, err)
		}
		right := 0.0
		for _, id := range in.ProblemIDs {
			for _, tr := range runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.Step(1).Group(id)) {
				right += tr.Reward
			}
		}
		if built.Stats.RewardMean != right/15 {
			t.Errorf("mean reward %v, want %v of the 15 that were scored", built.Stats.RewardMean, right/15)
		}
		for _, s := range runtest.ReadLines[rl.Batch](t, h.Store, h.Layout.Step(1).Batch())[0].Samples {
			if s.Rollout == 0 {
				t.Errorf("the lost rollout of %s is in the batch", s.ProblemID)
			}
		}
	})
}

func TestUnpublishedPolicyIsNotFound(t *testing.T) {
	h := runtest.New(t, nil)
	r, engine := h.NewSampling(t)
	in := sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "final", Policy: run.Policy{Version: 9}}
	_, err := r.Evaluate(t.Context(), in, r.NewProgress())
	runtest.WantFault(t, err, fault.NotFound, "policy 9 of run demo")
	engine.Fail = fmt.Errorf("read policies/9: %w", blob.ErrNotExist)
	in.Policy = runtest.PolicyRef(9)
	_, err = r.Evaluate(t.Context(), in, r.NewProgress())
	runtest.WantFault(t, err, fault.NotFound, "policies/9")
	engine.Fail = runtest.ErrDied
	if _, err = r.Evaluate(t.Context(), in, r.NewProgress()); !errors.Is(err, runtest.ErrDied) {
		t.Errorf("error %v, want the store's, to be retried", err)
	}
	engine.Fail = nil
	if _, err = r.Evaluate(t.Context(), in, r.NewProgress()); err != nil {
		t.Errorf("the engine is not given back after a failure: %v", err)
	}
}

// TestEvaluationDoesNotTakeThePolicyAway: activities of one run that need
// different policies work one after another; those of two runs do not wait.
func TestEvaluationDoesNotTakeThePolicyAway(t *testing.T) {
	h := runtest.New(t, nil)
	b := runtest.Prepare(t, h.Store, "other", nil)
	engines := map[uint64]*runtest.Scripted{}
	r, _ := h.NewSampling(t)
	r.NewEngine = func(*run.Loaded) (sampling.Engine, error) {
		e := h.NewScripted(t)
		engines[uint64(len(engines))] = e
		return e, nil
	}
	errs := make(chan error)
	for step := 1; step <= 4; step++ {
		go func() {
			_, err := r.SampleGroups(context.Background(), sampleInput(t, h, 1, step), r.NewProgress())
			errs <- err
		}()
		go func() {
			_, err := r.Evaluate(context.Background(), sampling.EvaluateInput{Run: b.Ref, Stage: 1, Label: "final", Policy: runtest.PolicyRef(int64(step))}, r.NewProgress())
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if len(engines) != 2 {
		t.Errorf("%d engines for 2 runs", len(engines))
	}
}

// TestEnginesMakeRoom: the one unused for the longest time goes.
func TestEnginesMakeRoom(t *testing.T) {
	h := runtest.New(t, nil)
	r, _ := h.NewSampling(t)
	var engines []*runtest.Scripted
	r.NewEngine = func(*run.Loaded) (sampling.Engine, error) {
		engines = append(engines, h.NewScripted(t))
		return engines[len(engines)-1], nil
	}
	var runs []run.Ref
	for n := range 5 {
		runs = append(runs, runtest.Prepare(t, h.Store, fmt.Sprint("run", n), nil).Ref)
	}
	for i, n := range []int{0, 1, 2, 3, 0, 4} {
		_, err := r.Evaluate(t.Context(), sampling.EvaluateInput{Run: runs[n], Stage: 1, Label: fmt.Sprint(i), Policy: runtest.PolicyRef(1)}, r.NewProgress())
		if err != nil {
			t.Fatal(err)
		}
	}
	var closed []int
	for n, e := range engines {
		if e.Closed {
			closed = append(closed, n)
		}
	}
	if len(engines) != 5 || !slices.Equal(closed, []int{1}) {
		t.Errorf("closed %v of %d engines, want that of run 1 of 5", closed, len(engines))
	}
}
