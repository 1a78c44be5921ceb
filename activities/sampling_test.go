package activities_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

func (h *house) sampleInput(t testing.TB, stage, step int) activities.SampleGroupsInput {
	return activities.SampleGroupsInput{
		Run: h.run, Stage: stage, Step: step, ProblemIDs: h.selected(t, stage, step), Policy: policyRef(int64(step - 1)),
	}
}

// groups is the stored groups of a step by key.
func (h *house) groups(t testing.TB, step int) map[string]string {
	t.Helper()
	out := dump(t, h.store)
	for key := range out {
		if !strings.HasPrefix(key, h.layout.Step(step, "trajectories")) {
			delete(out, key)
		}
	}
	return out
}

func TestSampledGroups(t *testing.T) {
	h := newHouse(t, nil)
	r, engine := h.rollouts(t)
	in := h.sampleInput(t, 1, 2)
	got, err := r.SampleGroups(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := run.Sampled{Groups: 3, Trajectories: 18, Shards: got.Shards}
	if len(got.Shards) != 1 {
		t.Fatalf("%d shards, want the one that was sampled", len(got.Shards))
	}
	rewards := map[float64]int{}
	for _, id := range in.ProblemIDs {
		for i, tr := range readLines[rl.Trajectory](t, h.store, h.layout.Group(2, id)) {
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
	if diff := cmp.Diff(engine.loads, []int64{1}); diff != "" {
		t.Errorf("loaded policies: %s", diff)
	}
	r.Sampling.Close()
	if !engine.closed {
		t.Error("the engine is left open")
	}
}

// TestSamplingResumes after a death at each write: what was stored is kept, the
// rest is the same, and nothing is half there.
func TestSamplingResumes(t *testing.T) {
	h := newHouse(t, nil)
	prepared := dump(t, h.store)
	in := h.sampleInput(t, 1, 1)
	r, _ := h.rollouts(t)
	if _, err := r.SampleGroups(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	want := h.groups(t, 1)
	for at := 1; at <= 6; at++ {
		h.store = fill(t, prepared)
		f := fate{at: at}
		r, _ := h.rollouts(t)
		r.Sampling.Store = mortal{h.store, &f}
		if _, err := r.SampleGroups(t.Context(), in); !errors.Is(err, errDied) {
			t.Fatalf("moment %d: error %v", at, err)
		}
		stored := h.groups(t, 1)
		r, engine := h.rollouts(t)
		got, err := r.SampleGroups(t.Context(), in)
		if err != nil || got.Reused != len(stored) || got.Groups != 3 || got.Trajectories != 18 {
			t.Errorf("death %s: %+v (%v), want %d groups reused of 3", f.names[at-1], got, err, len(stored))
		}
		for _, req := range engine.Requests() {
			id := strings.Split(req.Session, "/")[4]
			if _, ok := stored[h.layout.Group(1, id)]; ok {
				t.Fatalf("death %s: %s was sampled again", f.names[at-1], req.Session)
			}
		}
		if diff := cmp.Diff(h.groups(t, 1), want); diff != "" {
			t.Errorf("death %s: got -, want +\n%s", f.names[at-1], diff)
		}
	}
}

func TestDamagedGroupIsNoEndlessRetry(t *testing.T) {
	h := newHouse(t, nil)
	in := h.sampleInput(t, 1, 1)
	put(t, h.store, h.layout.Group(1, in.ProblemIDs[1]), `{"problem_id": "x"`)
	r, _ := h.rollouts(t)
	_, err := r.SampleGroups(t.Context(), in)
	wantKind(t, err, string(fault.Corrupt), in.ProblemIDs[1])
}

// down is a sandbox that fails for the given problems' programs.
func down(fails func(req sandbox.Request) bool) *sandboxtest.Fake {
	return &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		if fails(req) {
			return sandbox.Result{}, sandbox.ErrUnavailable
		}
		return python(req)
	}}
}

// TestOutageIsNoReward: rollouts that the sandbox failed are excluded, and with
// a sandbox that is down nothing is stored at all, so that it will be repeated.
func TestOutageIsNoReward(t *testing.T) {
	h := newHouse(t, nil)
	in := h.sampleInput(t, 1, 1)
	sample := func(t *testing.T, fails func(sandbox.Request) bool) (run.Sampled, error) {
		r, _ := h.rollouts(t)
		r.Sampling.Executor = down(fails)
		var out run.Sampled
		var err error
		synctest.Test(t, func(*testing.T) { out, err = r.SampleGroups(context.Background(), in) })
		return out, err
	}
	t.Run("down", func(t *testing.T) {
		_, err := sample(t, func(sandbox.Request) bool { return true })
		if err == nil || !strings.Contains(err.Error(), "lost all 6 trajectories") || !strings.Contains(err.Error(), sandbox.ErrUnavailable.Error()) {
			t.Errorf("error %v, want one that tells of the outage", err)
		}
		if stored := h.groups(t, 1); len(stored) != 0 {
			t.Errorf("stored %v", stored)
		}
	})
	t.Run("in part", func(t *testing.T) {
		out, err := sample(t, func(req sandbox.Request) bool { return strings.Split(req.ID, "/")[5] == "0" })
		if err != nil || out.InfraErrors != 3 {
			t.Fatalf("%+v (%v), want the first rollout of 3 groups lost", out, err)
		}
		built, err := h.control.BuildBatch(t.Context(), activities.BuildBatchInput{Run: h.run, Stage: 1, Step: 1, ProblemIDs: in.ProblemIDs})
		if err != nil || built.Stats.InfraErrors != 3 || built.Stats.Trajectories != 18 {
			t.Fatalf("%+v (%v)", built, err)
		}
		right := 0.0
		for _, id := range in.ProblemIDs {
			for _, tr := range readLines[rl.Trajectory](t, h.store, h.layout.Group(1, id)) {
				right += tr.Reward
			}
		}
		if built.Stats.RewardMean != right/15 {
			t.Errorf("mean reward %v, want %v of the 15 that were scored", built.Stats.RewardMean, right/15)
		}
		for _, s := range readLines[rl.Batch](t, h.store, h.layout.Batch(1))[0].Samples {
			if s.Rollout == 0 {
				t.Errorf("the lost rollout of %s is in the batch", s.ProblemID)
			}
		}
	})
}

func TestUnpublishedPolicyIsNotFound(t *testing.T) {
	h := newHouse(t, nil)
	r, engine := h.rollouts(t)
	in := activities.EvaluateInput{Run: h.run, Stage: 1, Label: "final", Policy: run.Policy{Version: 9}}
	_, err := r.EvaluatePolicy(t.Context(), in)
	wantKind(t, err, string(fault.NotFound), "policy 9 of run demo")
	engine.fail = fmt.Errorf("read policies/9: %w", blob.ErrNotExist)
	in.Policy = policyRef(9)
	_, err = r.EvaluatePolicy(t.Context(), in)
	wantKind(t, err, string(fault.NotFound), "policies/9")
	engine.fail = errDied
	if _, err = r.EvaluatePolicy(t.Context(), in); !errors.Is(err, errDied) {
		t.Errorf("error %v, want the store's, to be retried", err)
	}
	engine.fail = nil
	if _, err = r.EvaluatePolicy(t.Context(), in); err != nil {
		t.Errorf("the engine is not given back after a failure: %v", err)
	}
}

// TestEvaluationDoesNotTakeThePolicyAway: activities of one run that need
// different policies work one after another; those of two runs do not wait.
func TestEvaluationDoesNotTakeThePolicyAway(t *testing.T) {
	h := newHouse(t, nil)
	b := prepare(t, h.store, "other", nil)
	engines := map[uint64]*scripted{}
	r, _ := h.rollouts(t)
	r.Sampling.NewEngine = func(*run.Loaded) (sampling.Engine, error) {
		e := h.newScripted(t)
		engines[uint64(len(engines))] = e
		return e, nil
	}
	errs := make(chan error)
	for step := 1; step <= 4; step++ {
		go func() {
			_, err := r.SampleGroups(context.Background(), h.sampleInput(t, 1, step))
			errs <- err
		}()
		go func() {
			_, err := r.EvaluatePolicy(context.Background(), activities.EvaluateInput{Run: b.run, Stage: 1, Label: "final", Policy: policyRef(int64(step))})
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
	h := newHouse(t, nil)
	r, _ := h.rollouts(t)
	var engines []*scripted
	r.Sampling.NewEngine = func(*run.Loaded) (sampling.Engine, error) {
		engines = append(engines, h.newScripted(t))
		return engines[len(engines)-1], nil
	}
	var runs []run.Ref
	for n := range 5 {
		runs = append(runs, prepare(t, h.store, fmt.Sprint("run", n), nil).run)
	}
	for i, n := range []int{0, 1, 2, 3, 0, 4} {
		_, err := r.EvaluatePolicy(t.Context(), activities.EvaluateInput{Run: runs[n], Stage: 1, Label: fmt.Sprint(i), Policy: policyRef(1)})
		if err != nil {
			t.Fatal(err)
		}
	}
	var closed []int
	for n, e := range engines {
		if e.closed {
			closed = append(closed, n)
		}
	}
	if len(engines) != 5 || !slices.Equal(closed, []int{1}) {
		t.Errorf("closed %v of %d engines, want that of run 1 of 5", closed, len(engines))
	}
}
