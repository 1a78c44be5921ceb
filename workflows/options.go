package workflows

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
)

// Sizes that decide how work is cut into activities and histories. They travel
// in workflow inputs, so that changing one does not disturb running workflows.
const (
	// SFTChunk is the number of supervised updates of one TrainSFT: the most
	// work that a killed trainer repeats, and the wait before a pause takes hold.
	SFTChunk = 25
	// StepsPerExecution is the number of steps after which a stage continues as
	// new. A step is 14 events of its stage, and some more beside alerts; the server warns at 4,096.
	StepsPerExecution = 200
	// NumRolloutShards is the least number of SampleGroups of one step; the control
	// worker that opens a run may ask for more.
	NumRolloutShards = 1
)

const (
	// heartbeatTimeout is how long a dead worker stays unnoticed.
	heartbeatTimeout = 15 * time.Second
	// taskTimeout is how long a workflow task waits for a worker that died with it. A replay of
	// 2,815 events was measured at 0.1 s, and longer control work extends its task
	// at 80 % of its time. From the fourth attempt on the server gives a task more
	// time, so that a machine under any load gets through.
	taskTimeout = 3 * time.Second
	// trainTimeout and rolloutTimeout bound one attempt. They are generous: a
	// lost worker is noticed by its heartbeat, a wedged one by the activity's
	// own watch over its progress.
	trainTimeout   = 12 * time.Hour
	rolloutTimeout = 12 * time.Hour
	// prepareTimeout bounds one attempt at the data of a run: millions of lines are read
	// in minutes.
	prepareTimeout = 6 * time.Hour
	// localTimeout bounds one attempt of control work; see doControl.
	localTimeout = 20 * time.Minute
	// lookupAttempts bounds asking for something that may not exist at all.
	lookupAttempts = 5
	// farewellTimeout bounds each last write of a run that ends in cancellation
	// or failure.
	farewellTimeout = time.Minute
)

// retries survives the loss of any process: infrastructure errors are repeated until they
// pass. An error that repeating cannot mend is not retryable; see package fault.
func retries() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 2,
		MaximumInterval:    10 * time.Second,
	}
}

// lookup gives up after a few attempts: the caller may have named a policy that
// was never published, which looks like any other failure of the trainer.
func lookup(ctx workflow.Context, summary string) workflow.Context {
	options := activityOptions(QueueTrainer, trainTimeout, summary)
	options.RetryPolicy.MaximumAttempts = lookupAttempts
	return workflow.WithActivityOptions(ctx, options)
}

// onTrainer and onRollouts are the options of activities of a run with these queues: its
// own, or those that all runs share.
func onTrainer(ctx workflow.Context, q placement.Queues, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, activityOptions(cmp.Or(q.Trainer, QueueTrainer), trainTimeout, summary))
}

func onRollouts(ctx workflow.Context, q placement.Queues, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, activityOptions(cmp.Or(q.Rollout, QueueRollout), rolloutTimeout, summary))
}

// activityOptions waits for cancelled activities: when a run has ended, nothing
// of it still writes or holds a device.
func activityOptions(queue string, attempt time.Duration, summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:           queue,
		StartToCloseTimeout: attempt,
		HeartbeatTimeout:    heartbeatTimeout,
		WaitForCancellation: true,
		RetryPolicy:         retries(),
		Summary:             summary,
	}
}

// finalWrite is withinTask for the last words of a run that was cancelled or failed:
// it outlives the cancellation and gives up soon.
func finalWrite(ctx workflow.Context, summary string) (workflow.Context, workflow.CancelFunc) {
	policy := retries()
	policy.MaximumAttempts = 3
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: farewellTimeout,
		RetryPolicy:            policy,
		Summary:                summary,
	}), cancel
}

// asChild waits for a cancelled child, and leaves out a retry policy: a child
// fails only for reasons that its activities could not retry away.
func asChild(ctx workflow.Context, id, summary string, attributes temporal.SearchAttributes) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            id,
		TaskQueue:             QueueControl,
		WorkflowTaskTimeout:   taskTimeout,
		WaitForCancellation:   true,
		StaticSummary:         summary,
		TypedSearchAttributes: attributes,
	})
}

// priority is Temporal's for a run's; 0 leaves the server's default, 3. The
// activities of a child inherit the child's.
func priority(n int) temporal.Priority { return temporal.Priority{PriorityKey: n} }

// runWorkers are the workers that do the work of a run: its own on a cluster, or the ones
// that all runs share.
type runWorkers struct {
	at   *progress
	room *clusterRoom
}

// onTrainer returns the options of an activity of the run's trainer.
func (w *runWorkers) onTrainer(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onTrainer(ctx, w.room.queues(), summary), priority(w.at.plan.Priority))
}

// onRollouts returns the options of an activity of the run's rollout workers.
func (w *runWorkers) onRollouts(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onRollouts(ctx, w.room.queues(), summary), priority(w.at.plan.Priority))
}

// publish makes a policy of the state after SFT, or of the checkpoint where a fork begins.
func (w *runWorkers) publish(ctx workflow.Context, step int) error {
	var trainer *activities.Trainer
	return workflow.ExecuteActivity(w.onTrainer(ctx, fmt.Sprintf("publish policy %d", step)), trainer.PublishPolicy,
		activities.PublishInput{Run: w.at.ref, Step: step}).Get(ctx, &w.at.policy)
}
