package workflows_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/fault"
	"temper/internal/run/ablation"
	"temper/workflows"
)

// ablateMethods are what Ablate calls beside its runs; see controlMethods.
type ablateMethods interface {
	PlanAblation(context.Context, activities.PlanAblationInput) (ablation.Plan, error)
	FindAblationRun(context.Context, activities.FindAblationRunInput) (ablation.Stored, error)
	RecordAblationRun(context.Context, ablation.Ended) error
	CollectAblation(context.Context, activities.CollectAblationInput) (ablation.Outcome, error)
}

var (
	_ ablateMethods = (*activities.Control)(nil)
	_ ablateMethods = (*fakeControl)(nil)
)

func (c *fakeControl) PlanAblation(_ context.Context, in activities.PlanAblationInput) (ablation.Plan, error) {
	return ablation.Plan{ID: in.ID, Config: "name: base\n", Arms: in.Arms, Seeds: in.Seeds}, c.w.called("plan ablation %s", in.ID)
}

// FindAblationRun finds of each run what its fault says: "stored done" or "stored begun".
func (c *fakeControl) FindAblationRun(_ context.Context, in activities.FindAblationRunInput) (ablation.Stored, error) {
	if err := c.w.called("find %s", in.RunID); err != nil {
		return "", err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if have, ok := strings.CutPrefix(c.w.ablated[in.RunID], "stored "); ok {
		return ablation.Stored(have), nil
	}
	return ablation.StoredNothing, nil
}

func (c *fakeControl) RecordAblationRun(_ context.Context, in ablation.Ended) error {
	err := c.w.called("ended %s: %s", in.RunID, in.State)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if err == nil {
		c.w.ablated[in.RunID] = in.State
	}
	return err
}

func (c *fakeControl) CollectAblation(_ context.Context, in activities.CollectAblationInput) (ablation.Outcome, error) {
	err := c.w.called("collect %s", in.ID)
	out := ablation.Outcome{ID: in.ID}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, state := range c.w.ablated {
		if out.Of++; state == ablation.RunDone || state == ablation.RunFound {
			out.Whole++
		}
	}
	return out, err
}

const ablateWorkflow = "ablate/roc"

func ablationOf(parallel int, seeds ...uint64) ablation.Input {
	return ablation.Input{
		ID: "roc", Config: json.RawMessage(`"name: base\n"`), Seeds: seeds, Parallel: parallel,
		Arms: []ablation.Arm{{Name: "on"}, {Name: "off", Set: map[string]string{"rl.roc.enabled": "false"}}},
	}
}

func runAblation(t *testing.T, w *world, in ablation.Input, change func(*scenario)) (ablation.Outcome, error) {
	t.Helper()
	env := newEnv(t, w)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: ablateWorkflow, TaskQueue: workflows.QueueControl})
	if change != nil {
		change(&scenario{t: t, w: w, env: env})
	}
	env.ExecuteWorkflow(workflows.Ablate, in)
	var out ablation.Outcome
	err := env.GetWorkflowError()
	if err == nil {
		err = env.GetWorkflowResult(&out)
	}
	return out, err
}

// ablationCalls are those of the ablation itself.
func ablationCalls(w *world) (out []string) {
	for _, c := range w.log() {
		if strings.HasPrefix(c, "ended ") || strings.HasPrefix(c, "collect ") {
			out = append(out, c)
		}
	}
	return out
}

// TestAblation makes all arms of a seed before the next seed, each as an ordinary run with
// the overrides of its arm, and collects once; infrastructure errors change nothing.
func TestAblation(t *testing.T) {
	for name, faults := range map[string]map[string][]error{
		"undisturbed": {},
		"disturbed":   {"plan ablation roc": {infraError()}, "find roc-off-s7": {infraError()}, "ended roc-on-s2: done": {infraError()}, "collect roc": {infraError()}, "train 1": {infraError()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.faults = faults
			out, err := runAblation(t, w, ablationOf(0, 7, 2), nil)
			if err != nil || out.Whole != 4 || out.Of != 4 {
				t.Fatalf("outcome %+v, error %v", out, err)
			}
			want := []string{"ended roc-on-s7: done", "ended roc-off-s7: done", "ended roc-on-s2: done", "ended roc-off-s2: done", "collect roc"}
			if diff := cmp.Diff(slices.Compact(ablationCalls(w)), want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
			off := w.opened["roc-off-s2"]
			if off.Set["rl.roc.enabled"] != "false" || off.Set["seed"] != "2" || string(off.Config) != `"name: base\n"` {
				t.Errorf("run of the second arm: %+v", off)
			}
			if on := w.opened["roc-on-s2"]; len(on.Set) != 1 || on.Set["seed"] != "2" {
				t.Errorf("run of the first arm: %+v", on)
			}
		})
	}
}

// TestAblationFindsItsRuns: a run that is whole is not made again, and one that is not goes
// on as it is stored, without a configuration.
func TestAblationFindsItsRuns(t *testing.T) {
	w := newWorld(1)
	w.ablated = map[string]string{"roc-on-s1": "stored done", "roc-off-s1": "stored begun"}
	out, err := runAblation(t, w, ablationOf(1, 1), nil)
	if err != nil || out.Whole != 2 {
		t.Fatalf("outcome %+v, error %v", out, err)
	}
	if _, made := w.opened["roc-on-s1"]; made {
		t.Error("a run that is whole was made again")
	}
	if in, ok := w.opened["roc-off-s1"]; !ok || in.Config != nil && string(in.Config) != "null" || len(in.Set) > 0 {
		t.Errorf("a run that goes on got %+v, want its id alone", in)
	}
}

// TestAblationWhoseRunFails reports it and goes on with the others.
func TestAblationWhoseRunFails(t *testing.T) {
	w := newWorld(1)
	w.faults["train 1"] = []error{finalError(string(fault.Diverged), "loss is NaN")}
	w.faults["find roc-on-s2"] = []error{finalError(string(fault.RunExists), "run id roc-on-s2 is taken by another configuration")}
	out, err := runAblation(t, w, ablationOf(1, 1, 2), nil)
	if err != nil || out.Whole != 2 || out.Of != 4 {
		t.Fatalf("outcome %+v, error %v, calls %v", out, err, ablationCalls(w))
	}
	want := []string{"ended roc-on-s1: failed", "ended roc-off-s1: done", "ended roc-on-s2: failed", "ended roc-off-s2: done", "collect roc"}
	if diff := cmp.Diff(ablationCalls(w), want); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestAblationInParallel has as many runs under way as it was told, and no more.
func TestAblationInParallel(t *testing.T) {
	for _, parallel := range []int{1, 3} {
		w := newWorld(1)
		w.hold = 20 * time.Millisecond
		out, err := runAblation(t, w, ablationOf(parallel, 1, 2, 3), nil)
		going, most := 0, 0
		for _, call := range w.log() {
			switch {
			case call == "open":
				going++
			case strings.HasPrefix(call, "ended "):
				going--
			}
			most = max(most, going)
		}
		if err != nil || out.Whole != 6 || most != parallel {
			t.Errorf("parallel %d: %d at a time, outcome %+v, error %v", parallel, most, out, err)
		}
	}
}

func statusOfAblation(t *testing.T, env *testsuite.TestWorkflowEnvironment) (s workflows.AblationStatus) {
	t.Helper()
	v, err := env.QueryWorkflowByID(ablateWorkflow, workflows.QueryStatus)
	if err == nil {
		err = v.Get(&s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPausedAblation begins no run and holds the one that goes on, until it is resumed; who
// and why are told.
func TestPausedAblation(t *testing.T) {
	w := newWorld(2)
	out, err := runAblation(t, w, ablationOf(1, 1), func(s *scenario) {
		s.when("TrainStep", 1, func() {
			s.update(ablateWorkflow, workflows.CommandPause, command(t, `{"reason": "lunch", "by": "ann"}`))
			s.env.RegisterDelayedCallback(func() {
				got := statusOfAblation(t, s.env)
				if got.State != workflows.StatePaused || got.Reason != "lunch" || got.By != "ann" || got.Since == nil {
					t.Errorf("status %+v, want paused for lunch", got)
				}
				if w.count("train") != 1 || w.count("ended") != 0 {
					t.Errorf("calls while paused: %v", w.log())
				}
				refused := s.update(ablateWorkflow, workflows.CommandPause)
				s.env.RegisterDelayedCallback(func() {
					if refused.refused == nil || !strings.Contains(refused.refused.Error(), "paused already: lunch") {
						t.Errorf("a second pause: %v", refused.refused)
					}
					s.update(ablateWorkflow, workflows.CommandResume)
				}, time.Second)
			}, days)
		})
	})
	if err != nil || out.Whole != 2 {
		t.Errorf("outcome %+v, error %v", out, err)
	}
}

// TestStoppedAblation stops the run that goes on and collects what there is.
func TestStoppedAblation(t *testing.T) {
	w := newWorld(3)
	out, err := runAblation(t, w, ablationOf(1, 1, 2), func(s *scenario) {
		s.when("TrainStep", 1, func() { s.update(ablateWorkflow, workflows.CommandStop, command(t, `{"reason": "enough"}`)) })
	})
	if err != nil || !out.Stopped || out.Whole != 0 {
		t.Errorf("outcome %+v, error %v", out, err)
	}
	if diff := cmp.Diff(ablationCalls(w), []string{"ended roc-on-s1: stopped", "collect roc"}); diff != "" {
		t.Errorf("got -, want +\n%s", diff)
	}
}

// TestCancelledAblation waits for its run and collects nothing.
func TestCancelledAblation(t *testing.T) {
	w := newWorld(3)
	_, err := runAblation(t, w, ablationOf(2, 1, 2), func(s *scenario) { s.when("TrainStep", 1, s.env.CancelWorkflow) })
	if !temporal.IsCanceledError(err) || w.count("collect") != 0 || w.count("finish") == 0 {
		t.Errorf("error %v, calls %v", err, w.log())
	}
}

// TestLongAblationContinuesAsNew with what it knows, so that its history stays short.
func TestLongAblationContinuesAsNew(t *testing.T) {
	w := newWorld(1)
	var seeds []uint64
	for s := range uint64(15) {
		seeds = append(seeds, s)
	}
	_, err := runAblation(t, w, ablationOf(1, seeds...), nil)
	if err == nil || !strings.Contains(err.Error(), "continue as new") || w.count("ended") != 25 || w.count("collect") != 0 {
		t.Fatalf("error %v after %d runs", err, w.count("ended"))
	}
	plan := ablation.Plan{ID: "roc", Config: "name: base\n", Arms: ablationOf(1).Arms, Seeds: seeds}
	known := ablation.Progress{Plan: plan, States: slices.Repeat([]string{ablation.RunDone}, 25), Reasons: make([]string, 30)}
	known.States = append(known.States, slices.Repeat([]string{ablation.RunWaiting}, 5)...)
	out, err := runAblation(t, w, ablation.Input{ID: "roc", Parallel: 1, Continued: &known}, nil)
	if err != nil || out.Whole != 30 || w.count("ended") != 30 || w.count("plan") != 1 {
		t.Errorf("outcome %+v, error %v, %d runs", out, err, w.count("ended"))
	}
}

// TestAblationRefusesUnknownKeys by name, before anything is done.
func TestAblationRefusesUnknownKeys(t *testing.T) {
	w := newWorld(1)
	env := newEnv(t, w)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: ablateWorkflow, TaskQueue: workflows.QueueControl})
	env.ExecuteWorkflow(workflows.TypeAblate, json.RawMessage(`{"id": "roc", "sedes": [1], "arms": [{"name": "on", "sets": {}}]}`))
	err := env.GetWorkflowError()
	if err == nil || !strings.Contains(err.Error(), "sedes") || !strings.Contains(err.Error(), "arms[0].sets") || w.count("plan") != 0 {
		t.Errorf("error %v, calls %v", err, w.log())
	}
}
