package activities_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
)

// TestShardsAreOfThePlace: two control workers with different numbers leave the same
// plan in the store.
func TestShardsAreOfThePlace(t *testing.T) {
	var stored []string
	for _, shards := range []int{0, 3} {
		c := &activities.Control{Store: runtest.Fill(t, nil), RolloutShards: shards}
		value, err := execute(t, c, c.OpenRun, run.Input{RunID: "demo", Config: runtest.Text(t, runtest.Recipe)})
		if err != nil {
			t.Fatal(err)
		}
		var plan run.Plan
		if err := value.Get(&plan); err != nil || plan.NumRolloutShards != shards {
			t.Errorf("the plan has %d shards (%v), want %d", plan.NumRolloutShards, err, shards)
		}
		stored = append(stored, runtest.Dump(t, c.Store)[artifact.Layout{RunID: "demo"}.Plan()])
	}
	if stored[0] != stored[1] || stored[0] == "" {
		t.Errorf("the stored plans differ:\n%s\n%s", stored[0], stored[1])
	}
}

// TestForkNamesWhatItInherits, one line for each amendment.
func TestForkNamesWhatItInherits(t *testing.T) {
	h := runtest.New(t, nil)
	h.StoreBatches(t, 1, 2)
	for _, lr := range []string{"0.1", "0.2"} {
		if _, err := h.Amend(t, config.Amendment{FromStep: 1, Set: map[string]string{"rl.optimizer.lr": lr}, By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	c := &activities.Control{Store: h.Store}
	for without, want := range map[bool][]string{
		false: {"from step 1: rl.optimizer.lr=0.1 (by ann)", "from step 1: rl.optimizer.lr=0.2 (by ann)"}, true: nil,
	} {
		in := run.Input{RunID: "child", Fork: &run.ForkFrom{RunID: "demo", From: run.FromLast, WithoutAmendments: without}}
		out, err := c.CheckFork(t.Context(), activities.CheckForkInput{Input: in})
		if err != nil || out.Step != 2 || !slices.Equal(out.Inherited, want) {
			t.Errorf("step %d, inherits %q (%v); want step 2 and %q", out.Step, out.Inherited, err, want)
		}
	}
}

// TestAlertsLeaveTheHouse with the step that they begin with, and with no other.
func TestAlertsLeaveTheHouse(t *testing.T) {
	h := runtest.New(t, map[string]string{"watch.dropped_steps": "1"})
	var told []run.Notice
	c := &activities.Control{Store: h.Store, Notify: func(_ context.Context, n run.Notice) { told = append(told, n) }}
	for step := 1; step <= 2; step++ {
		in := run.StepInput{Run: h.Ref, Stage: 1, StageName: "first", Step: step, NumSteps: 6, Rollouts: run.StepRollouts{Groups: 3}}
		if _, err := c.LogStep(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0].RunID != "demo" || told[0].Stage != "first" || told[0].Step != 1 || len(told[0].Alerts) == 0 {
		t.Errorf("told %+v, want the alerts of step 1 alone", told)
	}
}

// TestSummaryHasTheMemoryOfTheService as far as the worker knows it.
func TestSummaryHasTheMemoryOfTheService(t *testing.T) {
	for _, peak := range []func() int64{nil, func() int64 { return 7 }} {
		h := runtest.New(t, nil)
		c := &activities.Control{Store: h.Store, PeakRSS: peak}
		if _, err := c.FinishRun(t.Context(), run.FinishInput{Run: h.Ref}); err != nil {
			t.Fatal(err)
		}
		got, _, err := artifact.Lookup[struct {
			Peak int64 `json:"peak_rss_bytes"`
		}](t.Context(), h.Store, h.Layout.Summary())
		want := int64(0)
		if peak != nil {
			want = peak()
		}
		if err != nil || got.Peak != want {
			t.Errorf("memory %d (%v), want %d", got.Peak, err, want)
		}
	}
}

// unwilling is a store that fails the first write of a key.
type unwilling struct {
	blob.Store
	key    string
	failed bool
}

func (u *unwilling) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if key == u.key && !u.failed {
		u.failed = true
		return blob.Ref{}, blob.ErrUnavailable
	}
	return u.Store.Put(ctx, key, r, cond)
}

// TestAlertsAreToldOnce, also where the store fails after the record of the step and the
// activity is repeated.
func TestAlertsAreToldOnce(t *testing.T) {
	h := runtest.New(t, map[string]string{"watch.dropped_steps": "1"})
	told := 0
	c := &activities.Control{Store: &unwilling{Store: h.Store, key: h.Layout.Step(1).Manifest()}, Notify: func(context.Context, run.Notice) { told++ }}
	in := run.StepInput{Run: h.Ref, Stage: 1, StageName: "first", Step: 1, NumSteps: 6, Rollouts: run.StepRollouts{Groups: 3}}
	if _, err := c.LogStep(t.Context(), in); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	if _, err := c.LogStep(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
