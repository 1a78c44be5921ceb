package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/workflows"
)

// freeze sends what the watcher of the server's pauses sends; "" ends the pause.
func (s *scenario) freeze(target, paused string, below bool) {
	s.t.Helper()
	news := map[string]any{}
	if paused != "" {
		news["freeze"] = workflows.Freeze{Workflow: paused, Reason: "look", By: "web@ann", Since: time.Unix(1, 0).UTC(), Below: below}
	}
	if err := s.env.SignalWorkflowByID(target, "freeze", news); err != nil {
		s.t.Error(err)
	}
}

func (s *scenario) stage() workflows.RunStatus {
	s.t.Helper()
	return decodeStatus(s.t)(s.env.QueryWorkflowByID(stageWorkflow, workflows.QueryStatus))
}

// TestFreezeOfTheRunHoldsItsStage before its next step, which is made when the server
// lets the run go on.
func TestFreezeOfTheRunHoldsItsStage(t *testing.T) {
	w := newWorld(3)
	s := newScenario(t, w)
	s.when("TrainStep", 2, func() {
		s.freeze(stageWorkflow, runWorkflow, false)
		s.env.RegisterDelayedCallback(func() {
			got := s.stage()
			if got.State != workflows.StatePaused || got.Step != 2 || got.By != "web@ann" || got.Since == nil || got.Frozen == nil ||
				got.Reason != "workflow rl/demo is paused on the server: look" {
				t.Errorf("stage %+v, want paused after step 2 by web@ann for a look", got)
			}
			s.freeze(stageWorkflow, "", false)
		}, days)
	})
	if got := s.run().Policy.Version; got != 3 {
		t.Errorf("policy %d, want 3", got)
	}
	want := []string{
		"stage: stage 1 (hop1) begins: 3 steps",
		"pause: before step 3: workflow rl/demo is paused on the server: look (by web@ann)", "resume: before step 3",
	}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	checkEachStepOnce(t, w, 3)
}

// TestPauseByCommandOutlivesAFreeze: each is taken back by itself, in whatever order
// they came.
func TestPauseByCommandOutlivesAFreeze(t *testing.T) {
	for name, first := range map[string]bool{"the freeze came first": true, "the command came first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			s := newScenario(t, w)
			pause := func() { s.update(runWorkflow, workflows.CommandPause, workflows.Command{Reason: "lunch"}) }
			s.when("TrainStep", 1, func() {
				if first {
					s.freeze(stageWorkflow, "retrain/x", false)
					s.env.RegisterDelayedCallback(pause, days)
				} else {
					pause()
					s.env.RegisterDelayedCallback(func() { s.freeze(stageWorkflow, "retrain/x", false) }, days)
				}
				s.env.RegisterDelayedCallback(func() { s.freeze(stageWorkflow, "", false) }, 2*days)
				s.env.RegisterDelayedCallback(func() { s.checkPaused(1); s.update(runWorkflow, workflows.CommandResume) }, 3*days)
			})
			if got := s.run().Policy.Version; got != 3 {
				t.Errorf("policy %d, want 3", got)
			}
		})
	}
}

// TestFreezeOfTheStageShowsInTheRun, which refuses what the stage would have to hear.
func TestFreezeOfTheStageShowsInTheRun(t *testing.T) {
	w := newWorld(2)
	w.stuck = map[string]bool{"sample 2": true}
	s := newScenario(t, w)
	var amended, stopped *answer
	s.when("SampleGroups", 2, func() {
		s.freeze(runWorkflow, stageWorkflow, true)
		s.env.RegisterDelayedCallback(func() {
			if got := statusOf(t, s.env); got.State != workflows.StatePaused || got.By != "web@ann" || !strings.Contains(got.Reason, stageWorkflow) {
				t.Errorf("run %+v, want paused by web@ann", got)
			}
			amended = s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"rl.optimizer.lr": "0.1"}}`))
			stopped = s.update(runWorkflow, workflows.CommandStop)
			s.freeze(runWorkflow, "", true)
			s.env.RegisterDelayedCallback(func() { // when the end of the freeze is written down
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stuck = nil
			}, 200*time.Millisecond)
		}, 50*time.Millisecond)
	})
	if got := s.run(); got.Stopped || got.Policy.Version != 2 {
		t.Errorf("result %+v, want policy 2", got)
	}
	for name, got := range map[string]*answer{"amend": amended, "stop": stopped} {
		if got.refused == nil || !strings.Contains(got.refused.Error(), "temper run resume") {
			t.Errorf("%s: %v, want a refusal with the way out", name, got.refused)
		}
	}
	want := []string{
		"stage: stage 1 (hop1) begins: 2 steps",
		"pause: while training: workflow rl/demo/stage-01-hop1 is paused on the server: look (by web@ann)", "resume: while training",
	}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestStopUnderAFreeze: a stage that is held can be ended.
func TestStopUnderAFreeze(t *testing.T) {
	w := newWorld(3)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.freeze(stageWorkflow, "retrain/x", false)
		s.env.RegisterDelayedCallback(func() { s.update(runWorkflow, workflows.CommandStop) }, days)
	})
	if got := s.run(); !got.Stopped || got.Policy.Version != 1 {
		t.Errorf("result %+v, want stopped with policy 1", got)
	}
}
