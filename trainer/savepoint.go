package trainer

import (
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/qwen3"
)

// savepoint is what a step of several updates changes, as it was before, in
// buffers of the device: nothing goes by way of the host. The zero value is that
// of a step of one update, which changes all or nothing by itself.
type savepoint struct {
	counters counters
	copies   []*tensors.Tensor // in the order of changing
}

// keep makes a savepoint. The caller releases it.
func (t *Trainer) keep() (*savepoint, error) {
	nothing := tensors.FromScalar(float32(0))
	defer finalize([]*tensors.Tensor{nothing})
	copies, err := t.call(program{pass: passCopy}, shape{}, nothing)
	if err != nil {
		return nil, err
	}
	return &savepoint{counters: t.counters, copies: copies}, nil
}

// undo takes back what was done since, because of err, which it returns.
func (s *savepoint) undo(t *Trainer, err error) error {
	if s.copies == nil {
		return err
	}
	for i, v := range t.changing() {
		if setErr := v.SetValue(s.copies[i]); setErr != nil {
			t.ready = false
			return errors.Join(err, fmt.Errorf("take back %s: %w", v.Path(), setErr))
		}
	}
	s.copies = nil // they are the state now
	t.counters, t.ready = s.counters, true
	return err
}

// release frees the copies that were not needed.
func (s *savepoint) release() {
	finalize(s.copies)
	s.copies = nil
}

// changing are the variables that an update changes: weights and moments of the
// trained tensors.
func (t *Trainer) changing() []*model.Variable {
	var out []*model.Variable
	for _, spec := range t.tuning.trained {
		for _, path := range []string{qwen3.VariablePath(spec.Name), firstMomentPath(spec.Name), secondMomentPath(spec.Name)} {
			out = append(out, t.store.GetVariable(path))
		}
	}
	return out
}
