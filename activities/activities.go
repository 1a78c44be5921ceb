// Package activities holds the Temporal activities. Each takes an input, calls one function
// of a package that does not know Temporal, and returns its result, while heartbeats tell
// the server that it is alive. The package owns those heartbeats and the mapping from
// errors to Temporal's, and no algorithm.
//
// Invariant: every activity is idempotent by (run, step): repeating one gives
// the stored answer and changes nothing.
package activities

import (
	"context"

	"temper/internal/blob"
	"temper/internal/learner"
	"temper/internal/placement"
	"temper/internal/run"
	"temper/internal/run/replay"
	"temper/internal/run/setup"
	"temper/internal/sampling"
)

// Each exported method of the four types is registered as an activity. Stored
// histories hold its name.

// Control is what the control worker does itself: bookkeeping and pure steps.
type Control struct {
	Store blob.Store
	// SearchAttributes says whether the server knows the attributes of runs.
	SearchAttributes bool
	// PeakRSS is the largest memory of the whole service so far, in bytes; nil = not known.
	PeakRSS func() int64
	// RolloutShards is into how many parts the steps of runs that begin here cut their
	// sampling; 0 is one.
	RolloutShards int
	// Notify sends alerts to the outside and reports no failure; nil sends none.
	Notify func(context.Context, run.Notice)
	// Find asks the server for the owner of a run; see setup.Claim.
	Find func(context.Context, run.Owner) (setup.Execution, error)

	configs run.Configs
	// Chain writes the manifests of steps.
	Chain run.Chain

	selector sampling.Selector
}

// Placement gives runs workers of their own on a cluster. Control workers serve it.
type Placement struct {
	// Cluster is nil where there is none.
	Cluster *placement.Service
	// Announce tells the workflow of the cluster of a request, and starts it where it does
	// not run.
	Announce func(ctx context.Context, message string, arg any) error
}

// Trainer updates policies, one activity after another.
type Trainer struct{ Learner *learner.Service }

// Rollouts samples trajectories. Activities of different runs work side by side,
// those of one run one after another.
type Rollouts struct {
	Sampling *sampling.Service
	// Mender makes objects again that are damaged or gone.
	Mender *replay.Bench
}
