package workers

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/workflows"
)

// RunTrainer serves the trainer's activities until ctx ends, one at a time:
// the worker owns one device, and a policy is updated in order.
func RunTrainer(ctx context.Context, c client.Client, trainer *activities.Trainer, o Options) error {
	return service{
		queue: workflows.QueueTrainer, options: trainerOptions(o), onStart: o.OnStart,
		register: func(r worker.Registry) { r.RegisterActivity(trainer) },
	}.run(ctx, c)
}

func trainerOptions(o Options) worker.Options {
	options := o.base()
	options.DisableWorkflowWorker = true
	options.MaxConcurrentActivityExecutionSize = 1
	// A poller holds a slot while it polls, so that one slot feeds one poller.
	options.MaxConcurrentActivityTaskPollers = 1
	return options
}
