package optimizer

import (
	"fmt"

	"github.com/gomlx/compute"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/weights/tensor"
)

// Reference is the frozen policy that an objective compares with the trained one. It is not
// part of a checkpoint.
type Reference struct {
	network model.Config
	store   *ml.Store // nil until Set
	backend compute.Backend
}

// NewReference returns a reference without weights.
func NewReference(network model.Config) *Reference { return &Reference{network: network} }

// Set replaces the weights. It never replaces the store, from which the graph of the reference
// policy reads.
func (r *Reference) Set(weights []tensor.Named) error {
	store := r.store
	if store == nil {
		store = ml.NewStore()
	}
	if err := graphs.Import(r.backend, store, r.network, tensor.ByName(weights)); err != nil {
		return fmt.Errorf("reference policy: %w", err)
	}
	r.store = store
	return nil
}

// Held reports whether the reference has weights.
func (r *Reference) Held() bool { return r.store != nil }

// Store returns the store of the weights; nil before Set.
func (r *Reference) Store() *ml.Store { return r.store }

// Close frees the weights.
func (r *Reference) Close() {
	if r.store != nil {
		r.store.Finalize()
	}
}
