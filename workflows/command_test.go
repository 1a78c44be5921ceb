package workflows_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"temper/internal/run"
	"temper/workflows"
)

const (
	runWorkflow   = "rl/demo"
	stageWorkflow = "rl/demo/stage-01-hop1"
)

func startOptions(id string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueControl}
}

func asApplication(err error, app **temporal.ApplicationError) bool { return errors.As(err, app) }

func statusOf(t *testing.T, env *testsuite.TestWorkflowEnvironment) workflows.RunStatus {
	t.Helper()
	return decodeStatus(t)(env.QueryWorkflow(workflows.QueryStatus))
}

func decodeStatus(t *testing.T) func(converter.EncodedValue, error) workflows.RunStatus {
	t.Helper()
	return func(v converter.EncodedValue, err error) (s workflows.RunStatus) {
		t.Helper()
		if err == nil {
			err = v.Get(&s)
		}
		if err != nil {
			t.Errorf("query: %v", err)
		}
		return s
	}
}

// scenario drives a run of one stage by commands at known moments.
type scenario struct {
	t   *testing.T
	w   *world
	env *testsuite.TestWorkflowEnvironment
	// updates counts, because the environment answers a repeated id from memory.
	updates int
}

func newScenario(t *testing.T, w *world) *scenario {
	env := newEnv(t, w)
	env.SetStartWorkflowOptions(startOptions(runWorkflow))
	return &scenario{t: t, w: w, env: env}
}

// when calls f once, while the n-th attempt of an activity is in flight.
func (s *scenario) when(name string, n int, f func()) {
	seen := 0
	s.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name != name {
			return
		}
		if seen++; seen == n {
			f()
		}
	})
}

// update sends a command as an update and returns where its answer will be.
func (s *scenario) update(workflowID, name string, args ...any) *answer {
	a := &answer{}
	s.updates++
	err := s.env.UpdateWorkflowByID(workflowID, name, strconv.Itoa(s.updates), &testsuite.TestUpdateCallback{
		OnAccept:   func() {},
		OnReject:   func(err error) { a.refused = err },
		OnComplete: func(v any, err error) { a.text, a.failed = v, err },
	}, args...)
	if err != nil {
		s.t.Errorf("update %s: %v", name, err)
	}
	return a
}

type answer struct {
	refused, failed error
	text            any
}

// run executes the demo to its end.
func (s *scenario) run() workflows.RunResult {
	s.t.Helper()
	s.env.ExecuteWorkflow(workflows.RLRun, run.Input{RunID: "demo"})
	return resultOf(s.t, s.env)
}

const days = 7 * 24 * time.Hour

// TestPauseTakesHoldBetweenSteps sends each way of pausing during step 2 and
// looks a week later: step 2 was finished, step 3 not begun.
func TestPauseTakesHoldBetweenSteps(t *testing.T) {
	for name, send := range map[string]func(*scenario){
		"signal to the run":   func(s *scenario) { s.env.SignalWorkflow(workflows.CommandPause, workflows.Command{Reason: "lunch"}) },
		"update to the run":   func(s *scenario) { s.update(runWorkflow, workflows.CommandPause, workflows.Command{Reason: "lunch"}) },
		"update to the stage": func(s *scenario) { s.update(stageWorkflow, workflows.CommandPause, workflows.Command{Reason: "lunch"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			s := newScenario(t, w)
			s.when("TrainStep", 2, func() {
				send(s)
				s.env.RegisterDelayedCallback(func() { s.checkPaused(2); s.update(runWorkflow, workflows.CommandResume) }, days)
			})
			if got := s.run().Policy.Version; got != 3 {
				t.Errorf("policy %d after resume, want 3", got)
			}
			want := []string{"stage: stage 1 (hop1) begins: 3 steps", "pause: before step 3: lunch", "resume: before step 3"}
			if diff := cmp.Diff(want, w.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func (s *scenario) checkPaused(step int) {
	s.t.Helper()
	if got := s.w.count("log"); got != step {
		s.t.Errorf("%d steps while paused, want %d", got, step)
	}
	flow := statusOf(s.t, s.env)
	if flow.State != workflows.StatePaused || flow.Child != stageWorkflow || flow.Reason != "lunch" {
		s.t.Errorf("run status %+v, want paused for lunch, child %s", flow, stageWorkflow)
	}
	stage := decodeStatus(s.t)(s.env.QueryWorkflowByID(stageWorkflow, workflows.QueryStatus))
	if stage.State != workflows.StatePaused || stage.Step != step || stage.Last.Step != step {
		s.t.Errorf("stage status %+v, want paused after step %d", stage, step)
	}
	if step > 1 && (stage.Checkpoint == nil || *stage.Checkpoint != step/2*2) {
		s.t.Errorf("checkpoint %v of the stage, want the newest", stage.Checkpoint)
	}
}

func TestPauseDuringSFTAndEvaluation(t *testing.T) {
	for activityName, next := range map[string]string{"TrainSFT": "sft 25-30", "EvaluatePolicy": "select 1/1"} {
		t.Run(activityName, func(t *testing.T) {
			w := newWorld(1)
			s := newScenario(t, w)
			s.when(activityName, 1, func() {
				s.env.SignalWorkflow(workflows.CommandPause, nil)
				s.env.RegisterDelayedCallback(func() {
					if w.count(next) != 0 || statusOf(t, s.env).State != workflows.StatePaused {
						t.Errorf("%s begun while paused; state %s", next, statusOf(t, s.env).State)
					}
					s.env.SignalWorkflow(workflows.CommandResume, nil)
				}, days)
			})
			s.run()
		})
	}
}

// TestPauseInTheLastStepHoldsTheRun: the stage has no safe point left, so the
// pause must take hold before the evaluation.
func TestPauseInTheLastStepHoldsTheRun(t *testing.T) {
	for _, target := range []string{runWorkflow, stageWorkflow} {
		t.Run(target, func(t *testing.T) {
			w := newWorld(1)
			s := newScenario(t, w)
			s.when("TrainStep", 1, func() {
				s.update(target, workflows.CommandPause)
				s.env.RegisterDelayedCallback(func() {
					if w.count("eval stage 1 after") != 0 {
						t.Error("evaluated while paused")
					}
					s.update(runWorkflow, workflows.CommandResume)
				}, days)
			})
			s.run()
		})
	}
}

func TestCommandsThatMakeNoSenseAreRefused(t *testing.T) {
	w := newWorld(2)
	s := newScenario(t, w)
	var early, again *answer
	s.when("TrainStep", 1, func() {
		early = s.update(runWorkflow, workflows.CommandResume)
		s.update(runWorkflow, workflows.CommandPause, workflows.Command{Reason: "lunch"})
		s.env.RegisterDelayedCallback(func() {
			again = s.update(runWorkflow, workflows.CommandPause)
			s.update(runWorkflow, workflows.CommandResume)
		}, days)
	})
	s.run()
	if early.refused == nil || !strings.Contains(early.refused.Error(), "the run is not paused") {
		t.Errorf("resume of a going run: %v", early.refused)
	}
	if again.refused == nil || !strings.Contains(again.refused.Error(), "the run is paused already: lunch") {
		t.Errorf("second pause: %v", again.refused)
	}
}

func TestStopEndsTheRunAfterTheStep(t *testing.T) {
	w := newWorld(3, 1)
	s := newScenario(t, w)
	s.when("TrainStep", 2, func() { s.env.SignalWorkflow(workflows.CommandStop, workflows.Command{Reason: "good enough"}) })
	got := s.run()
	if !got.Stopped || got.Policy.Version != 2 {
		t.Errorf("result %+v, want stopped with policy 2", got)
	}
	if n := w.count("train"); n != 2 || w.count("eval stage 1 after") != 0 {
		t.Errorf("%d steps trained, want 2 and no evaluation; calls %v", n, w.log())
	}
	if in := w.finish[0]; !in.Stopped || in.Policy.Version != 2 || in.Stages[0].After.Label != "" {
		t.Errorf("finish: %+v", in)
	}
}

// TestStopOfAStageSkipsItsRest: the run evaluates and goes on with the next stage.
func TestStopOfAStageSkipsItsRest(t *testing.T) {
	w := newWorld(3, 1)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() { s.update(stageWorkflow, workflows.CommandStop) })
	got := s.run()
	if got.Stopped || got.Policy.Version != 4 {
		t.Errorf("result %+v, want policy 4 of the second stage", got)
	}
	if w.count("train 2") != 0 || w.count("eval stage 1 after with 1") != 1 {
		t.Errorf("calls %v", w.log())
	}
}

func TestStopOfAPausedRun(t *testing.T) {
	w := newWorld(3)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.update(runWorkflow, workflows.CommandPause)
		s.env.RegisterDelayedCallback(func() { s.update(runWorkflow, workflows.CommandStop) }, days)
	})
	if got := s.run(); !got.Stopped || got.Policy.Version != 1 {
		t.Errorf("result %+v, want stopped with policy 1", got)
	}
}
