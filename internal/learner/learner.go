// Package learner trains the policy of a run. It brings a training session to any update of
// the run, starting from the session's state or from the newest checkpoint, saves and
// restores it, publishes policies, and keeps the states of a few runs in memory. The port
// Learner computes the updates.
//
// Invariant: the state at a cursor is a function of the run's configuration and
// of its stored batches, whichever process made it.
package learner

import (
	"context"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/optimizer"
	"temper/trainer/weights/tensor"
)

// Learner is the training state of one policy: weights, optimizer, counters.
// Package trainer implements it. It is used by one goroutine at a time.
type Learner interface {
	// Init draws fresh weights from a seed.
	Init(seed uint64) error
	// Import takes weights; the optimizer starts afresh.
	Import(weights []tensor.Named) error
	// SFTStep makes one supervised update. The error of one that diverged has the kind
	// fault.Diverged; it may have a method Save for a report, see divergence.
	SFTStep(ctx context.Context, samples []rl.Sample, o config.Optimizer, p optimizer.Position) (rl.TrainMetrics, error)
	// Update makes the policy updates of one step. It returns the errors of SFTStep.
	Update(ctx context.Context, batch rl.Batch, o optimizer.Update) (rl.TrainMetrics, error)
	// ResetOptimizer forgets the moments.
	ResetOptimizer() error
	// KeepReference makes the current policy the reference policy.
	KeepReference() error
	// LoadReference makes the policy of a checkpoint the reference policy.
	LoadReference(ctx context.Context, store blob.Store, ref blob.Ref) error
	// Snapshot copies the state to the host; the copy shares nothing with the learner. It may
	// reuse the memory of room, an earlier copy that is no longer read.
	Snapshot(room checkpoint.State) (checkpoint.State, error)
	// RestoreState replaces the state by a snapshot, also one of another learner.
	RestoreState(s checkpoint.State) error
	// Restore replaces the state by a stored checkpoint.
	Restore(ctx context.Context, store blob.Store, ref blob.Ref) (step int, err error)
	// Publish stores the weights as a policy.
	Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error)
	// Close frees the state. A closed learner is not used again.
	Close()
}

// divergence is the error of an update that was refused because its numbers are not
// finite. It knows more than its text.
type divergence interface {
	error
	// Save stores what is known under key and returns where that is, for people.
	Save(ctx context.Context, store blob.Store, key string) (where string, err error)
}
