package workflows

import (
	"errors"
	"fmt"
	"math"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/placement"
	"temper/internal/run"
)

const (
	// localAttempts and localPatience bound control work inside a workflow task. The
	// pauses of 0.5, 1 and 2 s between the attempts pass within the task; a longer one
	// would be a timer of the server's, six events for each attempt. An attempt that
	// hangs keeps the task alive, at three events each 2.4 s.
	localAttempts = 4
	localPatience = 30 * time.Second
	// outsideInterval is the longest pause between attempts outside of workflow tasks:
	// who waits for a store longer than a minute waits a minute more at most.
	outsideInterval = time.Minute
)

// doControl does control work and puts its result into out, nil for none. It is tried
// a few times as a local activity, which costs one event and no trip through the
// server. A store that is away for longer makes it an ordinary activity: the server
// counts its attempts without an event, so that a history does not grow however long
// the store is away.
func doControl(ctx workflow.Context, summary string, activity, in, out any) error {
	err := workflow.ExecuteLocalActivity(withinTask(ctx, summary), activity, in).Get(ctx, out)
	if !mayPass(err) {
		return err
	}
	return workflow.ExecuteActivity(outsideTask(ctx, summary), activity, in).Get(ctx, out)
}

// mayPass reports whether an activity gave up for a reason that another attempt may
// not meet.
func mayPass(err error) bool {
	var final *temporal.ApplicationError
	if err == nil || temporal.IsCanceledError(err) {
		return false
	}
	return !errors.As(err, &final) || !final.NonRetryable()
}

// withinTask is for the attempts inside a workflow task. A lost worker is noticed by
// the task's time-out, without heartbeats.
func withinTask(ctx workflow.Context, summary string) workflow.Context {
	policy := retries()
	policy.MaximumAttempts = localAttempts
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: localPatience,
		RetryPolicy:            policy,
		Summary:                summary,
	})
}

// outsideTask is for the attempts after those, which never end.
func outsideTask(ctx workflow.Context, summary string) workflow.Context {
	options := activityOptions(QueueControl, localTimeout, summary)
	options.RetryPolicy.MaximumInterval = outsideInterval
	options.RetryPolicy.MaximumAttempts = math.MaxInt32 // without end: none stated would be ten under the SDK's virtual time
	return workflow.WithActivityOptions(ctx, options)
}

// maxMends bounds how often one activity is repeated because of damage.
const maxMends = 16

// withRepair calls an activity. If the activity fails because an object is damaged or
// missing that can be made again, withRepair has it repaired and calls once more.
func withRepair(ctx workflow.Context, q placement.Queues, ref run.Ref, call func() error) error {
	for n := 0; ; n++ {
		err := call()
		damaged, ok := damagedBy(err)
		if !ok || n == maxMends {
			return err
		}
		if repairErr := repairObject(ctx, q, ref, damaged); temporal.IsCanceledError(repairErr) {
			return repairErr
		} else if repairErr != nil {
			return withRepairError(err, repairErr)
		}
	}
}

// repairObject has a worker that can sample and train make an object again.
func repairObject(ctx workflow.Context, q placement.Queues, ref run.Ref, damaged blob.Ref) error {
	var rollouts *activities.Rollouts
	ctx = onRollouts(ctx, q, "make "+damaged.Key+" again")
	return workflow.ExecuteActivity(ctx, rollouts.MendObject, activities.MendInput{Run: ref, Damaged: damaged}).Get(ctx, nil)
}

// damagedBy returns the object that made an activity fail.
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

// withRepairError adds to the error of an activity the reason why the repair failed.
func withRepairError(err, repairErr error) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	text := fmt.Sprintf("%s; it was not made again: %s", app.Message(), failureText(repairErr))
	return temporal.NewNonRetryableApplicationError(text, app.Type(), err)
}
