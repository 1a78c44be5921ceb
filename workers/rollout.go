package workers

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/workflows"
)

// DefaultRolloutSlots is the number of rollout activities of one worker. They
// share its engine, and one SampleGroups fills it alone; the rest is room for
// an evaluation beside it.
const DefaultRolloutSlots = 4

// RunRollout serves sampling and evaluation until ctx ends. slots 0 means
// DefaultRolloutSlots.
func RunRollout(ctx context.Context, c client.Client, rollouts *activities.Rollouts, slots int, o Options) error {
	return service{
		queue: workflows.QueueRollout, options: rolloutOptions(slots, o), onStart: o.OnStart,
		register: func(r worker.Registry) { r.RegisterActivity(rollouts) },
	}.run(ctx, c)
}

func rolloutOptions(slots int, o Options) worker.Options {
	if slots <= 0 {
		slots = DefaultRolloutSlots
	}
	options := o.base()
	options.DisableWorkflowWorker = true
	options.MaxConcurrentActivityExecutionSize = slots
	options.MaxConcurrentActivityTaskPollers = min(slots, numPollers)
	return options
}
