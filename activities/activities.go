// Package activities holds the Temporal activities: thin structs of ports that
// resolve references, call one package and write references back. It owns the
// mapping from errors to Temporal's error types and no algorithm.
//
// Invariant: every activity is idempotent by (run, step): repeating one gives
// the stored answer and changes nothing.
package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/policy"
	"temper/sandbox"
)

// Control is what the control worker does itself: bookkeeping and pure steps.
type Control struct {
	Store blob.Store
	// SearchAttributes says whether the server knows the attributes of runs.
	SearchAttributes bool
	// PeakRSS is the largest memory of the whole service so far, in bytes; nil = not known.
	PeakRSS func() int64
}

// Trainer updates policies. It holds the training state of one run at a time
// and can rebuild it from the store at any moment.
type Trainer struct {
	Store blob.Store
	// NewLearner makes a learner without weights for a run's model.
	NewLearner func(cfg config.Run, vocabSize int) (Learner, error)
	Now        func() time.Time

	session *session
}

// Rollouts samples trajectories.
type Rollouts struct {
	Store    blob.Store
	Executor sandbox.Executor
	// NewEngine makes an engine without weights for a run's model.
	NewEngine func(cfg config.Run, vocabSize int) (Engine, error)
	// MaxConcurrent is the number of trajectories under way at a time.
	MaxConcurrent int
	Now           func() time.Time

	engines engines
}

// Engine is a policy engine whose weights can be replaced and that can be closed.
type Engine interface {
	policy.Loader
	Close()
}

// heartbeatInterval is well below the heartbeat time-outs of the workflows.
const heartbeatInterval = 2 * time.Second

// heartbeat tells the server that the activity lives until the returned
// function is called. progress is sent along, for people who look.
func heartbeat(ctx context.Context, progress func() any) (stop func()) {
	if !activity.IsActivity(ctx) {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx, progress())
			}
		}
	}()
	return func() { close(done); <-ended }
}
