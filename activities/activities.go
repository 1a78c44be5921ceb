// Package activities holds the Temporal activities: thin structs of ports that
// resolve references, call one package and write references back. It owns the
// mapping from errors to Temporal's error types and no algorithm.
//
// Invariant: every activity is idempotent by (run, step): repeating one gives
// the stored answer and changes nothing.
package activities

import (
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/policy"
	"temper/sandbox"
	"temper/trainer/qwen3"
)

// Control is what the control worker does itself: bookkeeping and pure steps.
type Control struct {
	Store blob.Store
	// SearchAttributes says whether the server knows the attributes of runs.
	SearchAttributes bool
	// PeakRSS is the largest memory of the whole service so far, in bytes; nil = not known.
	PeakRSS func() int64
}

// Trainer updates policies. It trains one run at a time, keeps the states of a few
// others, and can rebuild each from the store at any moment. Its activities run one
// after another.
type Trainer struct {
	Store blob.Store
	// NewLearner makes a learner without weights for a run's model.
	NewLearner func(cfg config.Run, model qwen3.Config) (Learner, error)
	Now        func() time.Time
	// Background runs the storing of a checkpoint beside the activities; nil
	// means a goroutine.
	Background func(task func())
	// MaxResident is how many runs keep their state here while another one is
	// trained, and MaxResidentBytes what all of them together may take, with the one
	// that is trained; 0 keeps none.
	MaxResident      int
	MaxResidentBytes int64

	mu      sync.Mutex
	session *session
	parked  []*session   // of runs that wait, the longest first
	doing   atomic.Value // string: for people who look at heartbeats
}

// Rollouts samples trajectories. Activities of different runs work side by side,
// those of one run one after another.
type Rollouts struct {
	Store    blob.Store
	Executor sandbox.Executor
	// NewEngine makes an engine without weights for a run's model.
	NewEngine func(cfg config.Run, model qwen3.Config) (Engine, error)
	// MaxConcurrent is the number of trajectories of a run under way at a time.
	MaxConcurrent int
	Now           func() time.Time

	engines engines
	trouble atomic.Pointer[string] // see watchedExecutor
}

// Engine is a policy engine whose weights can be replaced and that can be closed.
type Engine interface {
	policy.Loader
	Close()
}
