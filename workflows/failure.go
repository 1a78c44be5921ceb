package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
)

// asFailure turns the error of an activity, however deep below, into the failure
// of the workflow: its message is what a person reads, its type what a client switches
// on. Its cause is that of the error alone: the chain that leads to it would say the
// same again, once for each workflow and activity on the way, which have their own
// events in the history.
func asFailure(err error) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(app.Message(), app.Type(), errors.Unwrap(app))
}

// failureText is what a person reads of a failure, without types and causes.
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
