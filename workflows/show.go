package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
)

// show renders the run for the web UI.
func (r *runFlow) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, r.status().details(workflow.GetInfo(ctx).Namespace))
}

// status is answered without any message from the stage: the run names the
// stage, and whoever wants the steps asks it. One signal per step would cost
// the run three events and a workflow task each, for a number that is looked
// at now and then.
func (r *runFlow) status() RunStatus {
	reason, by, since := r.gate.reasons()
	s := RunStatus{
		RunID: r.in.RunID, Opened: r.ref.RunID != "", Prepared: r.prepared, State: stateOf(&r.gate, r.doing), Child: r.childID,
		Stage: r.stage, Step: r.last.Step, NumSteps: r.plan.NumSteps(),
		SFTStep: r.sftStep, SFTSteps: r.plan.SFTSteps, Last: r.last,
		PolicyVersion: r.policy.Version, Reason: reason, By: by, Since: since, Frozen: r.gate.Frozen, SummaryPath: r.summary,
		Amendments: r.amendments, Alerts: r.alerts, Priority: r.plan.Priority, Restarted: r.restarted,
		Room: r.room.shown(),
	}
	if r.saved >= 0 {
		s.Checkpoint = &r.saved
	}
	if f := r.plan.Fork; f != nil {
		s.Fork = &run.ForkFrom{RunID: f.RunID, Step: f.Step}
	}
	for i, report := range r.reports {
		note := r.notes[i]
		if why, ok := r.skips[i]; ok && note == "" {
			note = "to be " + why
		}
		s.Stages = append(s.Stages, stageStatus(report, note))
		if report.Plan.Index == r.stage {
			s.StageName = report.Plan.Name
		}
	}
	if r.ended != "" {
		s.State, s.Reason, s.By, s.Since = r.ended, r.why, "", nil
	}
	if r.ended != "" || s.State == StateDone { // it has given its room back for good
		s.Room = ""
	}
	return s
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
func (r steering) showCommand(ctx workflow.Context) {
	r.show(ctx)
	if err := r.publishState(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("status not told", "run_id", r.ref.RunID, "err", err)
	}
}

// publishState sets the search attribute of the state when that has changed: some ten
// events in the whole run, one more for each pause.
func (r *runFlow) publishState(ctx workflow.Context) error {
	state := stateOf(&r.gate, r.doing)
	if state == r.shownState || !r.plan.ProgressAttributes {
		return nil
	}
	r.shownState = state
	return r.describe(ctx, []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(AttributeStatus).ValueSet(string(state))})
}
