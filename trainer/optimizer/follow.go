package optimizer

import (
	"fmt"
	"slices"

	"temper/trainer/model/graphs"
	"temper/trainer/weights/tensor"
)

// Follow sets the weights of a state from another process, and the names of the tensors that
// are trained there and have gradients. The state has no moments, so it cannot make updates.
func Follow(s *State, weights []tensor.Named, trained []string) error {
	s.ready, s.Revision = false, s.Revision+1
	if err := graphs.Import(s.moments.backend, s.store, s.network, tensor.ByName(weights)); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	var next Tuning
	for _, spec := range s.network.Tensors() {
		if slices.Contains(trained, spec.Name) {
			next.Trained = append(next.Trained, spec)
		}
	}
	if len(next.Trained) != len(trained) {
		return fmt.Errorf("follow: %d of %d trained tensors are tensors of the model", len(next.Trained), len(trained))
	}
	if !s.tuning.Equal(next) {
		s.tuning = next
		s.layout++
	}
	s.ready = true
	return nil
}
