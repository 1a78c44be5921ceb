package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// logEvent adds a line to the run's event log.
func logEvent(ctx workflow.Context, ref run.Ref, kind, text string) error {
	return write(ctx, run.Event{Run: ref, Kind: kind, Text: text})
}

// logSkip adds a line that forks of the run read, too.
func logSkip(ctx workflow.Context, ref run.Ref, skip run.Skip, text string) error {
	return write(ctx, run.Event{Run: ref, Kind: run.EventSkip, Text: text, Skip: &skip})
}

func write(ctx workflow.Context, e run.Event) error {
	var control *activities.Control
	e.Time = workflow.Now(ctx)
	return doControl(ctx, "event log: "+e.Kind, control.LogEvent, e, nil)
}

// logPause records that a run is paused, where and why, or resumed.
func logPause(ctx workflow.Context, ref run.Ref, paused bool, reason, where string) error {
	if paused {
		return logEvent(ctx, ref, CommandPause, where+reason)
	}
	return logEvent(ctx, ref, CommandResume, where)
}

// searchAttributes describes a workflow for the list of the web UI. Stage and
// step are set when a child starts, which costs no event, and left out when empty.
func searchAttributes(known bool, runID, stage string, step int) temporal.SearchAttributes {
	if !known {
		return temporal.SearchAttributes{}
	}
	updates := []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyKeyword(AttributeRun).ValueSet(runID),
	}
	if stage != "" {
		updates = append(updates, temporal.NewSearchAttributeKeyKeyword(AttributeStage).ValueSet(stage))
	}
	if step > 0 {
		updates = append(updates, temporal.NewSearchAttributeKeyInt64(AttributeStep).ValueSet(int64(step)))
	}
	return temporal.NewSearchAttributes(updates...)
}

// runAttributes and stageAttributes are what the run itself is found by.
func runAttributes(runID string) []temporal.SearchAttributeUpdate {
	return []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(AttributeRun).ValueSet(runID)}
}

func stageAttributes(name string, last StepNumbers) []temporal.SearchAttributeUpdate {
	out := []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(AttributeStage).ValueSet(name)}
	if last.Seconds == 0 { // no step was made here
		return out
	}
	return append(out, progressAttributes(last)...)
}

func progressAttributes(last StepNumbers) []temporal.SearchAttributeUpdate {
	return []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyInt64(AttributeStep).ValueSet(int64(last.Step)),
		temporal.NewSearchAttributeKeyFloat64(AttributeReward).ValueSet(last.Reward),
	}
}

// saveCheckpoint saves the state after a step.
func saveCheckpoint(ctx workflow.Context, ref run.Ref, step int) error {
	var trainer *activities.Trainer
	return workflow.ExecuteActivity(ctx, trainer.SaveCheckpoint, activities.SaveCheckpointInput{Run: ref, Step: step}).Get(ctx, nil)
}

// canceled reports whether the workflow or a child that it waited for was cancelled.
func canceled(ctx workflow.Context, err error) bool {
	return ctx.Err() != nil || temporal.IsCanceledError(err)
}
