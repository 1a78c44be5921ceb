package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// logEvent adds a line to the run's event log.
func logEvent(ctx workflow.Context, run activities.RunRef, kind, text string) error {
	var control *activities.Control
	return workflow.ExecuteLocalActivity(inline(ctx, kind), control.LogEvent, activities.LogEventInput{
		Run: run, Time: workflow.Now(ctx), Kind: kind, Text: text,
	}).Get(ctx, nil)
}

// logPause records that a run stands or goes on, and where.
func logPause(ctx workflow.Context, run activities.RunRef, paused bool, reason, where string) error {
	if paused {
		return logEvent(ctx, run, CommandPause, where+because(reason))
	}
	return logEvent(ctx, run, CommandResume, where)
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

// surface turns the error of an activity, however deep below, into the failure
// of the workflow: its message is what a person reads first, its type what a
// client switches on. The chain stays as its cause.
func surface(err error) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(app.Message(), app.Type(), err)
}

// canceled reports whether the workflow or a child that it waited for was cancelled.
func canceled(ctx workflow.Context, err error) bool {
	return ctx.Err() != nil || temporal.IsCanceledError(err)
}
