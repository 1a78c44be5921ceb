package workers

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/workflows"
)

// RunControl serves workflows and control activities until ctx ends. Several
// control workers may run side by side.
func RunControl(ctx context.Context, c client.Client, control *activities.Control, o Options) error {
	return service{
		queue: workflows.QueueControl, options: controlOptions(o), onStart: o.OnStart,
		register: func(r worker.Registry) { registerControl(r, control) },
	}.run(ctx, c)
}

func controlOptions(o Options) worker.Options {
	options := o.base()
	options.MaxConcurrentWorkflowTaskPollers = numPollers
	// The workflows of a killed worker wait so long for it before another one,
	// or its successor, replays them.
	options.StickyScheduleToStartTimeout = stickyTimeout
	return options
}

func registerControl(r worker.Registry, control *activities.Control) {
	workflows.Register(r)
	r.RegisterActivity(control)
}
