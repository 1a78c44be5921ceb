package workflows_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/testsuite"

	"temper/internal/fault"
	"temper/internal/run"
	"temper/workflows"
)

// samplers are the policies that sampled, by step, in the order of steps.
func samplers(w *world) []string {
	var out []string
	for _, call := range w.log() {
		if head, _, ok := strings.Cut(call, ":"); ok && strings.HasPrefix(head, "sample ") {
			out = append(out, head)
		}
	}
	slices.Sort(out)
	return out
}

// TestWhichPolicySamplesAStep is a matter of the window and of the step alone, however
// long anything takes, and whatever interrupts it.
func TestWhichPolicySamplesAStep(t *testing.T) {
	for window, want := range map[int][]int{
		0: {0, 1, 2, 3, 4}, 1: {0, 0, 1, 2, 3}, 2: {0, 0, 0, 1, 2}, 3: {0, 0, 0, 0, 1}, 8: {0, 0, 0, 0, 0},
	} {
		var wanted []string
		for i, version := range want {
			wanted = append(wanted, fmt.Sprintf("sample %d with %d", i+1, version))
		}
		for _, perExecution := range []int{100, 2, 1} {
			w := newWorld(5)
			in := stageInput(w, perExecution)
			in.Window, in.Progress.Policy = window, policyAt(0)
			got, n := runStage(t, w, in, func(*testsuite.TestWorkflowEnvironment) {})
			if diff := cmp.Diff(wanted, samplers(w)); diff != "" || got.Policy != policyAt(5) || w.count("train") != 5 || n != (5+perExecution-1)/perExecution {
				t.Errorf("window %d, %d steps an execution: policy %d after %d executions, samplers (-want +got):\n%s",
					window, perExecution, got.Policy.Version, n, diff)
			}
		}
	}
}

// TestWindowOfLaterStagesAndForks: a stage begins with one policy, wherever it begins.
func TestWindowOfLaterStagesAndForks(t *testing.T) {
	w := newWorld(3, 2)
	w.plan.Window = 1
	newScenario(t, w).run()
	want := []string{"sample 1 with 0", "sample 2 with 0", "sample 3 with 1", "sample 4 with 3", "sample 5 with 3"}
	if diff := cmp.Diff(want, samplers(w)); diff != "" {
		t.Errorf("two stages (-want +got):\n%s", diff)
	}
	w = newWorld(5)
	w.plan.Window = 1
	w.plan.Fork = &run.ForkPlan{RunID: "parent", Step: 2, Made: []int{2}}
	newScenario(t, w).run()
	want = []string{"sample 3 with 2", "sample 4 with 2", "sample 5 with 3"}
	if diff := cmp.Diff(want, samplers(w)); diff != "" {
		t.Errorf("fork (-want +got):\n%s", diff)
	}
}

// TestSamplingRunsBesideLearning: while a step is sampled and learned, the next one is
// being sampled, and what its record says of it is true.
func TestSamplingRunsBesideLearning(t *testing.T) {
	w := newWorld(3)
	w.plan.Window = 1
	w.hold = 50 * time.Millisecond
	s := newScenario(t, w)
	s.when("TrainStep", 2, func() {
		s.env.RegisterDelayedCallback(func() {
			if w.count("sample 3 with 1") != 1 || w.count("log 2") != 0 {
				t.Errorf("calls while step 2 is learned: %v", w.log())
			}
		}, 10*time.Millisecond)
	})
	s.run()
	if calls := w.log(); slices.Index(calls, "sample 2 with 0: p1,p2,p3") > slices.Index(calls, "train 1") || slices.Index(calls, "sample 3 with 1: p1,p2,p3") < slices.Index(calls, "log 1") {
		t.Errorf("calls %v, want step 2 asked for before step 1 is learned, and step 3 after", calls)
	}
	for i, want := range []struct {
		staleness int
		by        run.Policy
	}{{0, run.Policy{}}, {1, policyAt(0)}, {1, policyAt(1)}} {
		if got := w.logs[i]; got.Staleness != want.staleness || got.SampledBy != want.by || got.Step != i+1 {
			t.Errorf("step %d: staleness %d, sampled by %+v; want %+v", got.Step, got.Staleness, got.SampledBy, want)
		}
	}
}

// TestPauseLetsSamplingEnd: a stage that is paused does nothing. What was sampled ahead
// is kept.
func TestPauseLetsSamplingEnd(t *testing.T) {
	w := newWorld(3)
	w.plan.Window = 1
	w.stuck = map[string]bool{"sample 2": true}
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.update(runWorkflow, workflows.CommandPause)
		s.env.RegisterDelayedCallback(func() {
			if got := decodeStatus(t)(s.env.QueryWorkflowByID(stageWorkflow, workflows.QueryStatus)).State; got != workflows.StatePausing {
				t.Errorf("state %s while step 2 is sampled, want pausing", got)
			}
			w.mu.Lock()
			w.stuck = nil
			w.mu.Unlock()
		}, 200*time.Millisecond)
		s.env.RegisterDelayedCallback(func() {
			if got := statusOf(t, s.env).State; got != workflows.StatePaused || w.count("batch 2") != 1 || w.count("sample 3") != 0 {
				t.Errorf("state %s, calls %v; want paused with step 2 sampled and step 3 not begun", got, w.log())
			}
			s.update(runWorkflow, workflows.CommandResume)
		}, days)
	})
	s.run()
	want := []string{"sample 1 with 0", "sample 2 with 0", "sample 3 with 1"}
	if diff := cmp.Diff(want, samplers(w)); diff != "" {
		t.Errorf("samplers (-want +got):\n%s", diff)
	}
}

// TestPauseNowInterruptsSamplingAhead: it is done again by the same policy. What has
// ended is kept.
func TestPauseNowInterruptsSamplingAhead(t *testing.T) {
	for name, row := range map[string]struct {
		activity string
		n        int
		stuck    string
		again    []int // attempts of the second sampling that may be
	}{
		"while it goes on":        {"SampleGroups", 2, "sample 2", []int{2}},
		"while a step is learned": {"TrainStep", 1, "", []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			w.plan.Window = 1
			w.stuck = map[string]bool{row.stuck: true}
			s := newScenario(t, w)
			s.when(row.activity, row.n, func() {
				s.update(runWorkflow, workflows.CommandPause, command(t, `{"now": true}`))
				s.env.RegisterDelayedCallback(func() {
					if got := statusOf(t, s.env).State; got != workflows.StatePaused || w.count("log 2") != 0 {
						t.Errorf("state %s, calls %v", got, w.log())
					}
					w.mu.Lock()
					w.stuck = nil
					w.mu.Unlock()
					s.update(runWorkflow, workflows.CommandResume)
				}, days)
			})
			if got := s.run().Policy.Version; got != 3 {
				t.Errorf("policy %d, want 3", got)
			}
			want := []string{"sample 1 with 0", "sample 2 with 0", "sample 3 with 1"}
			if diff := cmp.Diff(want, slices.Compact(samplers(w))); diff != "" || !slices.Contains(row.again, w.count("sample 2")) {
				t.Errorf("calls %v; samplers (-want +got):\n%s", w.log(), diff)
			}
		})
	}
}

// TestStopDropsSamplingAhead: a stop and a skip wait for no step that is not learned.
func TestStopDropsSamplingAhead(t *testing.T) {
	for _, name := range []string{workflows.CommandStop, workflows.CommandSkipStage} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(4)
			w.plan.Window = 2
			w.stuck = map[string]bool{"sample 2": true, "sample 3": true}
			s := newScenario(t, w)
			s.when("TrainStep", 1, func() { s.update(runWorkflow, name) })
			if got := s.run().Policy.Version; got != 1 {
				t.Errorf("policy %d, want 1", got)
			}
			if w.count("train") != 1 || w.count("batch 2") != 0 || w.count("sample 4") != 0 {
				t.Errorf("calls %v", w.log())
			}
		})
	}
}

// TestAmendmentSparesWhatIsSampled: it holds from the first step on that nobody samples
// yet.
func TestAmendmentSparesWhatIsSampled(t *testing.T) {
	w := newWorld(6)
	w.plan.Window = 2
	s := newScenario(t, w)
	var refused *answer
	s.when("TrainStep", 1, func() {
		refused = s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"rl.optimizer.lr": 1e-5}, "from_step": 3}`))
		s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"rl.optimizer.lr": 1e-5}}`))
	})
	s.run()
	if len(w.amends) != 1 || w.amends[0].Amendment.FromStep != 4 {
		t.Errorf("amendments %+v, want one from step 4", w.amends)
	}
	if refused.failed == nil || !strings.Contains(refused.failed.Error(), "step 3 has begun: amend from step 4 on") {
		t.Errorf("answer %+v, want a refusal of step 3", refused)
	}
	if w.configs["select 3"] == w.configs["select 4"] {
		t.Errorf("configurations %v: step 4 has that of step 3", w.configs)
	}
}

// TestFailureAheadWaitsForItsStep: what is sampled already is learned first.
func TestFailureAheadWaitsForItsStep(t *testing.T) {
	w := newWorld(3)
	w.plan.Window = 1
	w.faults["sample 2 with 0: p1,p2,p3"] = []error{finalError(string(fault.UserCode), "reward.py line 3")}
	env := newEnv(t, w)
	runDemo(env)
	if err := env.GetWorkflowError(); err == nil || !strings.Contains(err.Error(), "reward.py line 3") {
		t.Errorf("error %v, want that of the sampling", err)
	}
	if w.count("log 1") != 1 || w.count("train 2") != 0 {
		t.Errorf("calls %v, want step 1 made and step 2 not", w.log())
	}
}
