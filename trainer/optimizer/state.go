package optimizer

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/internal/config"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/model/graphs"
	"temper/trainer/weights/tensor"
)

// ErrNone means that a state has no weights, or that a failed device call consumed them: call
// Init or Restore first.
var ErrNone = errors.New("trainer holds no state")

// State is the state of one policy's training. Its methods must not be called concurrently.
type State struct {
	network  model.Config
	store    *ml.Store
	moments  moments
	counters checkpoint.Counters
	tuning   Tuning
	ready    bool
	layout   int

	// Revision changes whenever a weight may have changed: a copy of the weights is current
	// while its revision is. Callers of a program that changes weights increase it.
	Revision int
}

// NewState returns a state that is not ready.
func NewState(network model.Config) *State {
	store := ml.NewStore()
	return &State{network: network, store: store, moments: moments{network: network, store: store}}
}

// Outline returns a state whose variables have no values, so that graphs can be compiled for a
// network larger than the memory. It is not ready.
func Outline(network model.Config, o config.Optimizer) (*State, error) {
	tuning, err := TuningOf(network, o)
	if err != nil {
		return nil, err
	}
	s := NewState(network)
	s.tuning = tuning
	outline := func(path string, spec model.TensorSpec, trainable bool) {
		s.store.VariableWithShape(path, shapes.Make(dtypes.Float32, spec.Shape...), nil).SetTrainable(trainable)
	}
	for _, spec := range network.Tensors() {
		outline(graphs.VariablePath(spec.Name), spec, true)
	}
	for _, spec := range tuning.Trained {
		outline(FirstMomentPath(spec.Name), spec, false)
		outline(SecondMomentPath(spec.Name), spec, false)
	}
	return s, nil
}

// PlaceOn puts new values of a state and of a reference into the memory of a backend. Finalize
// the backend after both are closed.
func PlaceOn(backend compute.Backend, s *State, r *Reference) {
	s.moments.backend, r.backend = backend, backend
}

// Close frees the variables.
func (s *State) Close() {
	s.ready = false
	s.store.Finalize()
}

// Init starts training from the random weights of a seed.
func (s *State) Init(seed uint64) error {
	s.ready, s.Revision = false, s.Revision+1
	if err := graphs.Init(s.moments.backend, s.store, s.network, seed); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return s.beginFresh()
}

// Import starts training from given weights, for example a published policy.
func (s *State) Import(weights []tensor.Named) error {
	s.ready, s.Revision = false, s.Revision+1
	if err := graphs.Import(s.moments.backend, s.store, s.network, tensor.ByName(weights)); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return s.beginFresh()
}

// beginFresh sets counters and moments to zero for new weights.
func (s *State) beginFresh() error {
	s.counters = checkpoint.Counters{}
	if err := s.moments.zero(); err != nil {
		return err
	}
	s.ready = true
	return nil
}

// Restore replaces the full state by a snapshot. After an error the state is not ready.
func (s *State) Restore(from checkpoint.State) error {
	s.ready, s.Revision = false, s.Revision+1
	if from.Model != s.network {
		return fmt.Errorf("restore: state of the model %+v, this trainer has %+v", from.Model, s.network)
	}
	if err := graphs.Import(s.moments.backend, s.store, s.network, tensor.ByName(from.Weights)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	changed, err := s.moments.restore(from)
	if changed {
		s.layout++
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	s.counters = from.Counters
	s.ready = true
	return nil
}

// ResetOptimizer drops the moments and their age, which corrects their bias. The weights and
// the total of updates stay. The first updates with fresh moments move every weight by the
// whole learning rate, whatever the gradient, so the learning rate should warm up again, or be
// low.
func (s *State) ResetOptimizer() error {
	if !s.ready {
		return fmt.Errorf("reset optimizer: %w", ErrNone)
	}
	s.counters.Updates, s.counters.Schedule = 0, 0
	return s.moments.zero()
}

// Tune prepares for updates by an optimizer: it makes moments for the tensors that the
// optimizer trains, and drops all others. Once moments are not zero, the trained tensors must
// stay the same until the next reset.
func (s *State) Tune(o config.Optimizer) error {
	next, err := TuningOf(s.network, o)
	if err != nil {
		return err
	}
	if s.counters.Updates > 0 {
		if err := s.moments.checkTrained(next, s.counters.Updates); err != nil {
			return err
		}
	}
	if !s.tuning.Equal(next) {
		s.layout++
	}
	s.tuning = next
	changed, err := s.moments.hold(next.Trained)
	if changed {
		s.layout++
	}
	return err
}

// Ready reports whether the state is whole.
func (s *State) Ready() bool { return s.ready }

// Verify checks the state after a failed device call, which may have consumed variables; the
// state is not ready then.
func (s *State) Verify() {
	for v := range s.store.IterVariables() {
		s.ready = s.ready && v.HasValue()
	}
}

// Counters returns the numbers of updates made.
func (s *State) Counters() checkpoint.Counters { return s.counters }

// CountUpdate counts an update of the weights.
func (s *State) CountUpdate() {
	s.counters.Updates++
	s.counters.TotalUpdates++
}

// SetSchedule records the place in the learning-rate schedule.
func (s *State) SetSchedule(step int) { s.counters.Schedule = step }

// Tuning returns the tuning for which the graphs of updates are built.
func (s *State) Tuning() Tuning { return s.tuning }

// Layout changes whenever the tuning or the set of moments changes: graphs of updates that
// were built before refer to other variables.
func (s *State) Layout() int { return s.layout }

// Store returns the store of the variables.
func (s *State) Store() *ml.Store { return s.store }
