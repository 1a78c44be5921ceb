package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// runState is the current state of a run, which shows it as its status, on its page of the
// web UI and as a search attribute.
type runState struct {
	runID string
	at    *progress
	gate  *gate
	room  *clusterRoom

	doing   State
	shown   State  // as search attribute
	childID string // workflow id of the stage that runs now
	alerts  []string
	closing bool // the summary is being written
	// ended tells how the run ended where it is no good end, and why.
	ended     State
	why       string
	summary   string // its path
	restarted string // the run that continues instead of this one
}

// show renders the run for the web UI.
func (s *runState) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, s.status().details(workflow.GetInfo(ctx).Namespace))
}

// status is answered without any message from the stage: the run names the stage, and who
// wants the steps asks it. One signal per step would cost the run three events and a
// workflow task each.
func (s *runState) status() RunStatus {
	reason, by, since := s.gate.reasons()
	out := RunStatus{
		RunID: s.runID, Opened: s.at.ref.RunID != "", Prepared: s.at.prepared, State: stateOf(s.gate, s.doing), Child: s.childID,
		Stage: s.at.stage, Step: s.at.last.Step, NumSteps: s.at.plan.NumSteps(),
		SFTStep: s.at.sftStep, SFTSteps: s.at.plan.SFTSteps, Last: s.at.last,
		PolicyVersion: s.at.policy.Version, Reason: reason, By: by, Since: since, Frozen: s.gate.Frozen, SummaryPath: s.summary,
		Amendments: s.at.amendments, Alerts: s.alerts, Priority: s.at.plan.Priority, Restarted: s.restarted,
		Room: s.room.text(),
	}
	if s.at.saved >= 0 {
		out.Checkpoint = &s.at.saved
	}
	if f := s.at.plan.Fork; f != nil {
		out.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	for i, report := range s.at.reports {
		note := s.at.notes[i]
		if why, ok := s.at.skips[i]; ok && note == "" {
			note = "to be " + why
		}
		out.Stages = append(out.Stages, stageStatus(report, note))
		if report.Plan.Index == s.at.stage {
			out.StageName = report.Plan.Name
		}
	}
	if s.ended != "" {
		out.State, out.Reason, out.By, out.Since = s.ended, s.why, "", nil
	}
	if s.ended != "" || out.State == StateDone { // it has given its room back for good
		out.Room = ""
	}
	return out
}

func stageStatus(report run.StageReport, note string) StageStatus {
	s := StageStatus{Name: report.Plan.Name, Steps: report.Plan.Steps, Note: note}
	if report.Before.Label != "" {
		s.Before = outcomeOf(report.Before)
	}
	if report.After.Label != "" {
		s.After = outcomeOf(report.After)
	}
	return s
}

// showCommand shows what a command has asked for, before the run comes to its safe point.
func (s *runState) showCommand(ctx workflow.Context) {
	s.show(ctx)
	s.tryPublish(ctx)
}

// publish sets the search attribute of the state when that has changed: some ten events in
// the whole run, one more for each pause.
func (s *runState) publish(ctx workflow.Context) error {
	state := stateOf(s.gate, s.doing)
	if state == s.shown || !s.at.plan.ProgressAttributes {
		return nil
	}
	s.shown = state
	return s.at.describe(ctx, []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(AttributeStatus).ValueSet(string(state))})
}

// tryPublish is publish for a state that the run does not depend on.
func (s *runState) tryPublish(ctx workflow.Context) {
	if err := s.publish(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("status not published", "run_id", s.at.ref.RunID, "err", err)
	}
}

// set shows what the run does now.
func (s *runState) set(ctx workflow.Context, doing State) error {
	s.doing = doing
	s.show(ctx)
	return s.publish(ctx)
}

// end shows an end that leaves no summary, or not the summary of a whole run.
func (s *runState) end(ctx workflow.Context, how State, why string) {
	s.ended, s.why = how, why
	s.show(ctx)
}

// enter passes a safe point and shows what the run does next.
func (s *runState) enter(ctx workflow.Context, doing State) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	return s.set(ctx, doing)
}

// work does what a command may interrupt, and again after an interruption.
func (s *runState) work(ctx workflow.Context, doing State, do func(workflow.Context) error) error {
	return s.gate.work(ctx, func(ctx workflow.Context) error {
		if err := s.set(ctx, doing); err != nil {
			return err
		}
		return do(ctx)
	})
}

// logPause records in the event log that the run stands or continues.
func (s *runState) logPause(ctx workflow.Context, paused bool) error {
	return logPause(ctx, s.at.ref, paused, s.gate.why(), fmt.Sprintf("while %s", s.doing))
}
