package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/testsuite"

	"temper/internal/run"
	"temper/workflows"
)

// spanned are the spans that steps of a window of 2 and 10 tokens are asked for.
func spanned() []string {
	return []string{
		"2: 0 to 20", "2: 0 to 20, 1 to 0",
		"3: 0 to 10", "3: 0 to 10, 1 to 20", "3: 0 to 10, 1 to 20, 2 to 0",
		"4: 1 to 10", "4: 1 to 10, 2 to 20", "4: 1 to 10, 2 to 20, 3 to 0",
		"5: 2 to 10", "5: 2 to 10, 3 to 20", "5: 2 to 10, 3 to 20, 4 to 0",
	}
}

// asked are the spans that were asked for, each once.
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.spans)))
}

// TestWhichPoliciesSampleAStep is a matter of the step alone, also where a stage continues
// as new in between. The step learns when its last span has ended.
func TestWhichPoliciesSampleAStep(t *testing.T) {
	for _, perExecution := range []int{100, 2, 1} {
		w := newWorld(5)
		in := stageInput(w, perExecution)
		in.Window, in.PartialTokens, in.Progress.Policy = 2, 10, policyAt(0)
		got, n := runStage(t, w, in, func(*testsuite.TestWorkflowEnvironment) {})
		if diff := cmp.Diff(spanned(), w.asked()); diff != "" || got.Policy != policyAt(5) || w.count("train") != 5 || n != (5+perExecution-1)/perExecution {
			t.Errorf("%d steps an execution: policy %d after %d executions, spans (-want +got):\n%s", perExecution, got.Policy.Version, n, diff)
		}
		if perExecution == 100 && len(w.spans) != len(spanned()) {
			t.Errorf("%d spans were sampled, want %d", len(w.spans), len(spanned()))
		}
	}
}

// TestASpanThatEndsAllIsTheLast: the next one is not asked for.
func TestASpanThatEndsAllIsTheLast(t *testing.T) {
	w := newWorld(5)
	w.endsAfter = map[int]int{3: 1, 4: 2}
	in := stageInput(w, 100)
	in.Window, in.PartialTokens, in.Progress.Policy = 2, 10, policyAt(0)
	runStage(t, w, in, func(*testsuite.TestWorkflowEnvironment) {})
	want := slices.DeleteFunc(spanned(), func(s string) bool {
		return slices.Contains([]string{"3: 0 to 10, 1 to 20", "3: 0 to 10, 1 to 20, 2 to 0", "4: 1 to 10, 2 to 20, 3 to 0"}, s)
	})
	if diff := cmp.Diff(want, w.asked()); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	var got []int
	for _, log := range w.logs {
		got = append(got, len(log.Spans))
	}
	if want := []int{0, 2, 3, 3, 3}; !slices.Equal(got, want) {
		t.Errorf("the records of steps name %v policies, want %v", got, want)
	}
	if log := w.logs[4]; log.Staleness != 2 || log.SampledBy != policyAt(2) || log.Spans[2] != (run.PolicySpan{Policy: policyAt(4)}) || log.Sample.Groups != 3 || log.Sample.Wall != 5*time.Second {
		t.Errorf("record of step 5: %+v", log)
	}
}

// TestPauseBetweenSpans: a paused stage does nothing, and what waits for a policy holds up
// neither a pause nor what a command interrupts.
func TestPauseBetweenSpans(t *testing.T) {
	for _, now := range []string{`{}`, `{"now": true}`} {
		w := newWorld(5)
		w.plan.Window, w.plan.PartialTokens = 2, 10
		s := newScenario(t, w)
		s.when("TrainStep", 2, func() {
			s.update(runWorkflow, workflows.CommandPause, command(t, now))
			s.env.RegisterDelayedCallback(func() {
				if got := statusOf(t, s.env).State; got != workflows.StatePaused || w.count("log 3") != 0 {
					t.Errorf("%s: state %s, calls %v", now, got, w.log())
				}
				s.update(runWorkflow, workflows.CommandResume)
			}, days)
		})
		if got := s.run().Policy.Version; got != 5 {
			t.Errorf("%s: policy %d, want 5", now, got)
		}
		if diff := cmp.Diff(spanned(), w.asked()); diff != "" {
			t.Errorf("%s: spans (-want +got):\n%s", now, diff)
		}
	}
}

// TestStopBetweenSpans ends the stage at once.
func TestStopBetweenSpans(t *testing.T) {
	w := newWorld(5)
	w.plan.Window, w.plan.PartialTokens = 2, 10
	s := newScenario(t, w)
	s.when("TrainStep", 2, func() { s.update(runWorkflow, workflows.CommandStop) })
	if got := s.run().Policy.Version; got != 2 || w.count("train") != 2 {
		t.Errorf("policy %d, calls %v", got, w.log())
	}
}
