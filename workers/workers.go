// Package workers builds and runs the Temporal workers, one per role: control
// (workflows and their bookkeeping), trainer and rollout. It owns registration,
// slots, pollers and draining. It does not build what the activities use.
//
// Invariant: when a Run function returns, its worker polls nothing and none of
// its activities runs any more, except one that ignored its cancellation for
// longer than the stop timeout.
package workers

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/internal/buildinfo"
)

const (
	// numPollers hides the trip of one poll behind another: with the SDK's two,
	// a hop through matching was measured at 19-25 ms, with eight at 7-10 ms.
	numPollers = 8
	// heartbeatEvery bounds the SDK's throttling of heartbeats, and with it how
	// late an activity learns that its run was cancelled. The default would be
	// 80 % of the heartbeat time-out, 24 s.
	heartbeatEvery = 3 * time.Second
	// stickyTimeout is how long a workflow task waits for the worker that holds
	// the workflow in its cache before any worker may take it.
	stickyTimeout = 3 * time.Second
	// deployment names all workers of the service for the server.
	deployment = "temper"
	// DefaultStopTimeout is the time that running activities get to end by
	// themselves when the worker drains.
	DefaultStopTimeout = 10 * time.Second
)

// Options are common to all roles. The zero value is good.
type Options struct {
	// StopTimeout bounds draining; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
	// Identity is shown by the server for this worker; empty = pid@host.
	Identity string
	// OnStart is called once when the worker polls its queue; nil is fine. An
	// error ends the worker.
	OnStart func() error
}

// base returns the worker options that all roles share.
func (o Options) base() worker.Options {
	stop := o.StopTimeout
	if stop == 0 {
		stop = DefaultStopTimeout
	}
	return worker.Options{
		Identity:                         o.Identity,
		WorkerStopTimeout:                stop,
		MaxConcurrentActivityTaskPollers: numPollers,
		MaxHeartbeatThrottleInterval:     heartbeatEvery,
		// The server writes down who did what; it routes by it only where versioning is
		// used, which would tie a run to a build that is gone after a deploy.
		DeploymentOptions: worker.DeploymentOptions{
			Version: worker.WorkerDeploymentVersion{DeploymentName: deployment, BuildID: buildinfo.Version()},
		},
	}
}

// service is what distinguishes the workers of one role from those of another.
type service struct {
	queue    string
	options  worker.Options
	onStart  func() error
	register func(worker.Registry)
}

// run serves a queue until ctx ends or the worker fails for good, then drains.
func (s service) run(ctx context.Context, c client.Client) error {
	failed := make(chan error, 1)
	options := s.options
	options.OnFatalError = func(err error) {
		select {
		case failed <- err:
		default: // the first one is reported
		}
	}
	w := worker.New(c, s.queue, options)
	s.register(w)
	if err := w.Start(); err != nil {
		return fmt.Errorf("start worker of queue %s: %w", s.queue, err)
	}
	defer w.Stop()
	if s.onStart != nil {
		if err := s.onStart(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("worker of queue %s: %w", s.queue, err)
	}
}
