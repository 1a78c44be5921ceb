package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/rules"
	"temper/internal/run"
)

// byWatch is who pauses a run that is in trouble.
const byWatch = "watch"

// alarm is the watch over the steps of a stage.
type alarm struct {
	in   *StageInput
	at   *StageProgress
	gate *gate
	show func(workflow.Context)
}

// applyWatch shows what the watch says of a step, tells the run above when that has
// changed, and holds the stage before its next step where an alert asks for it.
func (s *alarm) applyWatch(ctx workflow.Context, w run.Watched) {
	s.at.StallAfter = w.StallAfter
	changed := !slices.Equal(s.at.Alerts, w.Standing)
	s.at.Alerts = w.Standing
	if changed {
		s.signalAlerts(ctx)
	}
	for _, a := range w.Alerts {
		if a.Pause && !s.gate.Paused && !s.gate.Stopping {
			now := workflow.Now(ctx)
			s.gate.holding = holding{Paused: true, Reason: a.Text, By: byWatch, Since: &now}
			s.gate.changed(ctx)
		}
	}
}

// signalAlerts lets the run show the alerts, too.
func (s *alarm) signalAlerts(ctx workflow.Context) {
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		// A run that is gone needs no news.
		_ = workflow.SignalExternalWorkflow(ctx, parent.ID, "", signalStageGate, stageSignal{OnlyAlerts: true, Alerts: s.at.Alerts, Seal: s.in.Seal}).Get(ctx, nil)
	}
}

// raiseWhenStalled raises an alert when a step takes much longer than the ones
// before, and returns the function that ends the wait.
func (s *alarm) raiseWhenStalled(ctx workflow.Context, step int) (ended func()) {
	after := s.at.StallAfter
	if after <= 0 {
		return func() {}
	}
	waiting, cancel := workflow.WithCancel(ctx)
	timer := workflow.NewTimerWithOptions(waiting, after, workflow.TimerOptions{Summary: fmt.Sprintf("step %d counts as stalled", step)})
	workflow.Go(waiting, func(waiting workflow.Context) {
		if timer.Get(waiting, nil) != nil {
			return // the step has ended
		}
		telling, done := workflow.NewDisconnectedContext(waiting) // the step may end meanwhile
		defer done()
		alert := rules.Stalled(step, after)
		s.at.Alerts = append(slices.Clone(s.at.Alerts), alert.Text)
		s.show(telling)
		if err := s.raise(telling, alert); err != nil {
			workflow.GetLogger(telling).Warn("alert not recorded", "run_id", s.in.Run.RunID, "step", step, "err", err)
		}
		s.signalAlerts(telling)
	})
	return cancel
}

// raise records an alert that no step has raised.
func (s *alarm) raise(ctx workflow.Context, a rules.Alert) error {
	var control *activities.Control
	return doControl(ctx, "alert: "+a.Rule, control.RaiseAlert, activities.RaiseAlertInput{
		Run: s.in.Run, Stage: s.in.Plan.Name, NumSteps: s.in.NumSteps, Alert: a, Time: workflow.Now(ctx),
	}, nil)
}
