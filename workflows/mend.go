package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/placement"
	"temper/internal/run"
)

// maxMends bounds how often one activity is repeated because of damage.
const maxMends = 16

// mending calls an activity. Where the activity fails because an object is damaged or
// gone that can be made again, it has that done and calls once more.
func mending(ctx workflow.Context, q placement.Queues, ref run.Ref, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		damaged, ok := damagedBy(err)
		if !ok || n == maxMends {
			return err
		}
		if mendErr := mend(ctx, q, ref, damaged); temporal.IsCanceledError(mendErr) {
			return mendErr
		} else if mendErr != nil {
			return alsoNotMended(err, mendErr)
		}
	}
}

// mend has an object made again by a worker that can sample and train.
func mend(ctx workflow.Context, q placement.Queues, ref run.Ref, damaged blob.Ref) error {
	var rollouts *activities.Rollouts
	ctx = onRollouts(ctx, q, "make "+damaged.Key+" again")
	return workflow.ExecuteActivity(ctx, rollouts.MendObject, activities.MendInput{Run: ref, Damaged: damaged}).Get(ctx, nil)
}

// damagedBy is the object that made an activity fail.
func damagedBy(err error) (damaged blob.Ref, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || !app.HasDetails() {
		return blob.Ref{}, false
	}
	var details activities.Damage
	if app.Details(&details) != nil {
		return blob.Ref{}, false // the details of another kind of error
	}
	return details.Ref, details.Ref.Key != ""
}

// alsoNotMended adds to the error of an activity why the damage could not be mended.
func alsoNotMended(err, mendErr error) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	text := fmt.Sprintf("%s; it was not made again: %s", app.Message(), failureText(mendErr))
	return temporal.NewNonRetryableApplicationError(text, app.Type(), err)
}
