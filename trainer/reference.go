package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/ml/model"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// ErrNoReference means that the objective holds the policy near a reference
// policy and the trainer was given none: KeepReference or LoadReference first.
var ErrNoReference = errors.New("trainer holds no reference policy")

// KeepReference makes a copy of the present policy the reference policy.
func (t *Trainer) KeepReference() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready {
		return fmt.Errorf("keep reference: %w", ErrNoState)
	}
	weights, err := qwen3.Export(t.store, t.cfg.Model)
	if err != nil {
		return fmt.Errorf("keep reference: %w", err)
	}
	return t.setReference(weights)
}

// LoadReference makes the policy of the checkpoint at ref the reference policy.
// The state of training stays as it is. The reference policy is no part of a
// checkpoint: whoever restores one loads the reference again.
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
	return t.setReference(s.Weights)
}

// setReference keeps the store for good: the graph of the reference reads it.
func (t *Trainer) setReference(weights []qwen3.Tensor) error {
	store := t.reference
	if store == nil {
		store = model.NewStore()
	}
	if err := qwen3.Import(store, t.cfg.Model, lookup(weights)); err != nil {
		return fmt.Errorf("reference policy: %w", err)
	}
	t.reference = store
	return nil
}
