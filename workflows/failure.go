package workflows

import (
	"errors"
	"fmt"
	"unicode"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/fault"
)

// asFailure turns the error of an activity, however deep below, into the failure of the
// workflow: its message is for a person, its type for a client to switch on. Its cause is
// the cause of the error alone: the chain above it would repeat the text once for each
// workflow and activity on the way, which have their own events in the history.
func asFailure(err error) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(app.Message(), app.Type(), errors.Unwrap(app))
}

// failureText returns the text of a failure for a person, without types and causes.
func failureText(err error) string {
	var app *temporal.ApplicationError
	var late *temporal.TimeoutError
	var activity *temporal.ActivityError
	var killed *temporal.TerminatedError
	switch {
	case errors.As(err, &app):
		return app.Message()
	case errors.As(err, &late):
		what := "the workflow"
		if errors.As(err, &activity) {
			what = "activity " + activity.ActivityType().GetName()
		}
		return fmt.Sprintf("%s timed out (%s)", what, late.TimeoutType())
	case errors.As(err, &killed):
		return "it was terminated by an operator"
	case temporal.IsCanceledError(err):
		return "it was cancelled"
	default:
		return err.Error()
	}
}

// Failure turns what the server says of a failed workflow or a refused command into
// the text that a person reads and the kind of its fault. Other errors stay as they are.
func Failure(err error) error {
	var app *temporal.ApplicationError
	var failed *temporal.WorkflowExecutionError
	switch {
	case errors.As(err, &app):
		return fault.New(fault.Kind(app.Type()), errors.New(app.Message()))
	case errors.As(err, &failed):
		return errors.New(failureText(err))
	default:
		return err
	}
}

// refuse ends a workflow whose input or place is wrong.
func refuse(wrong error) error {
	if wrong == nil {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(wrong.Error(), string(fault.InvalidConfig), nil)
}

// refuseAlone refuses a stage that no run has started.
func refuseAlone(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).ParentWorkflowExecution != nil {
		return nil
	}
	return refuse(fmt.Errorf("%s is a part of a run, which starts it: start %s instead, for example by temper run submit", TypeStage, TypeRun))
}

// checkWorkflowID reports a workflow id that makes no run id: two ids that differ in
// letters which a run id does not have would name the same run.
func checkWorkflowID(id string) error {
	for _, r := range id {
		if r > unicode.MaxASCII {
			return errors.New(`workflow id "` + id + `": the run is named after it, and a run id has A-Z, a-z, 0-9, '.', '_' and '-' only: start it under another workflow id, or say {"run_id": "..."}`)
		}
	}
	return nil
}
