package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/rules"
	"temper/internal/run"
	"temper/workflows"
)

func trouble(step int, pause bool) run.Watched {
	a := rules.Alert{Rule: rules.RuleReward, Step: step, Text: "mean reward fell", Pause: pause}
	return run.Watched{Alerts: []rules.Alert{a}, Standing: []string{"mean reward fell, since step 2"}}
}

// TestAlertsShow in the status of run and stage, and in their pages, until the
// trouble is over.
func TestAlertsShow(t *testing.T) {
	w := newWorld(4)
	w.watched = map[int]run.Watched{2: trouble(2, false), 3: {Standing: []string{"mean reward fell, since step 2"}}}
	s := newScenario(t, w)
	var during, after workflows.RunStatus
	var stage workflows.RunStatus
	s.when("TrainStep", 3, func() {
		during = statusOf(t, s.env)
		stage = decodeStatus(t)(s.env.QueryWorkflowByID(stageWorkflow, workflows.QueryStatus))
	})
	if got := s.run().Policy.Version; got != 4 {
		t.Errorf("policy %d: an alert without a pause holds nothing", got)
	}
	after = statusOf(t, s.env)
	want := []string{"mean reward fell, since step 2"}
	if diff := cmp.Diff(during.Alerts, want) + cmp.Diff(stage.Alerts, want); diff != "" {
		t.Errorf("alerts while they stand: %s", diff)
	}
	if len(after.Alerts) != 0 {
		t.Errorf("alerts %v stand after the trouble", after.Alerts)
	}
}

// TestAlertPauses holds the run before its next step, says why and by whom, and
// lets a person resume it.
func TestAlertPauses(t *testing.T) {
	w := newWorld(4)
	w.watched = map[int]run.Watched{2: trouble(2, true)}
	s := newScenario(t, w)
	var paused workflows.RunStatus
	s.env.RegisterDelayedCallback(func() {
		paused = statusOf(t, s.env)
		s.update(runWorkflow, workflows.CommandResume)
	}, days)
	if got := s.run().Policy.Version; got != 4 {
		t.Errorf("policy %d after resume, want 4", got)
	}
	if paused.State != workflows.StatePaused || paused.Reason != "mean reward fell" || paused.By != "watch" || paused.Since == nil {
		t.Errorf("status %+v, want paused by the watch", paused)
	}
	want := []string{"stage: stage 1 (hop1) begins: 4 steps", "pause: before step 3: mean reward fell (by watch)", "resume: before step 3"}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestStalledStepIsTold, once, while it goes on.
func TestStalledStepIsTold(t *testing.T) {
	w := newWorld(3)
	w.watched = map[int]run.Watched{1: {StallAfter: 20 * time.Millisecond}}
	w.hold = 200 * time.Millisecond
	s := newScenario(t, w)
	s.run()
	var told []string
	for _, e := range w.events {
		if strings.HasPrefix(e, run.EventAlert+": ") {
			told = append(told, e)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "step 2 has not ended") {
		t.Errorf("alerts %q, want one of step 2", told)
	}
}
