package trainer

import (
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
)

// Snapshot copies the full state to the host; it shares nothing with the trainer. It writes
// into the memory of reusable, an earlier unused snapshot, where the sizes are the same; the
// zero State has no memory to reuse.
func (t *Trainer) Snapshot(reusable checkpoint.State) (checkpoint.State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Snapshot(reusable)
}

// RestoreState replaces the full state by a snapshot. After an error the trainer holds no state.
func (t *Trainer) RestoreState(s checkpoint.State) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Restore(s)
}

// Save stores the full state as the checkpoint of a step. Saving the same state
// again is a no-op; see checkpoint.Save.
func (t *Trainer) Save(ctx context.Context, store blob.Store, prefix string, step int) (blob.Ref, error) {
	s, err := t.Snapshot(checkpoint.State{})
	if err != nil {
		return blob.Ref{}, err
	}
	return checkpoint.Save(ctx, store, prefix, step, s)
}

// Restore replaces the full state by the checkpoint at ref and returns its step.
func (t *Trainer) Restore(ctx context.Context, store blob.Store, ref blob.Ref) (step int, err error) {
	step, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return 0, err
	}
	if err := t.RestoreState(s); err != nil {
		return 0, fmt.Errorf("%s: %w", ref.Key, err)
	}
	return step, nil
}

// Publish stores the weights as a policy in Hugging Face layout under prefix, with the tokenizer
// and the files of p, and holds one tensor at a time on the host. Publishing the same policy
// again is a no-op; see checkpoint.PublishFrom.
func (t *Trainer) Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.state.Ready() {
		return blob.Ref{}, fmt.Errorf("publish policy %s: %w", prefix, ErrNoState)
	}
	p.Model = t.cfg.Model.Base()
	return checkpoint.PublishFrom(ctx, store, prefix, p, t.passes.Publisher.Weight)
}

// KeepReference makes a copy of the present policy the reference policy.
func (t *Trainer) KeepReference() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	weights, err := t.state.Weights()
	if err != nil {
		return fmt.Errorf("keep reference: %w", err)
	}
	return t.reference.Set(weights)
}

// LoadReference makes the policy of the checkpoint at ref the reference policy. The state of
// training is unchanged. A checkpoint does not contain the reference policy, so load it again
// after Restore.
func (t *Trainer) LoadReference(ctx context.Context, store blob.Store, ref blob.Ref) error {
	_, s, err := checkpoint.Load(ctx, store, ref)
	if err != nil {
		return fmt.Errorf("load reference: %w", err)
	}
	if s.Model != t.cfg.Model {
		return fmt.Errorf("load reference: %s: policy of the model %+v, this trainer has %+v", ref.Key, s.Model, t.cfg.Model)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reference.Set(s.Weights)
}
