package workers

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/internal/proc/buildinfo"
)

const (
	// numPollers hides the trip of one poll behind another: with the SDK's two,
	// a hop through matching was measured at 19-25 ms, with eight at 7-10 ms.
	numPollers = 8
	// heartbeatEvery bounds the SDK's throttling of heartbeats, and with it how late an
	// activity learns that its run was cancelled. The SDK also cancels an activity whose
	// heartbeat finds no server for so long; its work is then done again.
	heartbeatEvery = 5 * time.Second
	// stickyTimeout is how long a workflow task waits for the worker that holds
	// the workflow in its cache before any worker may take it.
	stickyTimeout = 3 * time.Second
	// deployment names all workers of the service for the server.
	deployment = "temper"
	// stopTimeout is the time that running activities get to end by themselves when
	// a worker drains.
	stopTimeout = 10 * time.Second
)

// queueWorker serves one task queue.
type queueWorker struct {
	queue    string
	options  worker.Options
	register func(worker.Registry)
}

// baseOptions are the worker options that all roles share.
func baseOptions() worker.Options {
	return worker.Options{
		WorkerStopTimeout:                stopTimeout,
		MaxConcurrentActivityTaskPollers: numPollers,
		MaxHeartbeatThrottleInterval:     heartbeatEvery,
		// The server writes down who did what. It routes by this only where versioning
		// is used, which would tie a run to a build that is gone after a deploy.
		DeploymentOptions: worker.DeploymentOptions{
			Version: worker.WorkerDeploymentVersion{DeploymentName: deployment, BuildID: buildinfo.Build()},
		},
	}
}

// activityOptions are the options of a worker that runs so many activities at a time,
// and no workflows.
func activityOptions(slots int) worker.Options {
	options := baseOptions()
	options.DisableWorkflowWorker = true
	options.MaxConcurrentActivityExecutionSize = slots
	// A poller holds a slot while it polls.
	options.MaxConcurrentActivityTaskPollers = min(slots, numPollers)
	return options
}

// serve polls the queue until ctx ends or the worker fails for good, then drains.
// It calls started when it polls.
func (q queueWorker) serve(ctx context.Context, c client.Client, started func()) error {
	failed := make(chan error, 1)
	options := q.options
	options.OnFatalError = func(err error) {
		select {
		case failed <- err:
		default: // the first one is reported
		}
	}
	w := worker.New(c, q.queue, options)
	q.register(w)
	if err := w.Start(); err != nil {
		return fmt.Errorf("start worker of queue %s: %w", q.queue, err)
	}
	defer w.Stop()
	started()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("worker of queue %s: %w", q.queue, err)
	}
}
