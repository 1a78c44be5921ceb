package optimizer

import (
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/checkpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/tensor"
)

// moments are AdamW's two moments of each trained tensor.
type moments struct {
	network model.Config
	store   *ml.Store
	backend compute.Backend // see State.PlaceOn
}

// has reports whether a tensor has moments.
func (m moments) has(name string) bool {
	return m.store.GetVariable(FirstMomentPath(name)) != nil
}

// checkTrained compares the tensors to train with those that have moments.
func (m moments) checkTrained(next Tuning, updates int64) error {
	for _, spec := range m.network.Tensors() {
		now, before := next.Trains(spec.Name), m.has(spec.Name)
		if now != before {
			word := map[bool]string{true: "trained", false: "frozen"}
			return fmt.Errorf("optimizer: %s is %s but was %s in the %d updates before; reset the moments where freeze changes",
				spec.Name, word[now], word[before], updates)
		}
	}
	return nil
}

// hold makes the moments of the given tensors and drops all others. New ones are zero. changed
// is true as soon as one was made or dropped.
func (m moments) hold(trained []model.TensorSpec) (changed bool, err error) {
	keep := map[string]bool{}
	for _, spec := range trained {
		keep[spec.Name] = true
	}
	for _, spec := range m.network.Tensors() {
		err := forBoth(spec, func(path string) error {
			if has := m.store.GetVariable(path) != nil; has == keep[spec.Name] {
				return nil
			}
			changed = true
			if !keep[spec.Name] {
				return m.store.DeleteVariable(path)
			}
			return m.setMoment(path, spec, nil)
		})
		if err != nil {
			return changed, fmt.Errorf("moments of %s: %w", spec.Name, err)
		}
	}
	return changed, nil
}

// zero sets all moments to zero.
func (m moments) zero() error {
	for _, spec := range m.network.Tensors() {
		err := forBoth(spec, func(path string) error {
			if m.store.GetVariable(path) == nil {
				return nil
			}
			return m.setMoment(path, spec, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restore sets the moments from a snapshot. Before the first update no tensor has moments;
// later, a tensor without moments was frozen. changed has the meaning of hold.
func (m moments) restore(from checkpoint.State) (changed bool, err error) {
	if from.Counters.Updates == 0 {
		return false, m.zero()
	}
	first, second := tensor.ByName(from.FirstMoments), tensor.ByName(from.SecondMoments)
	var trained []model.TensorSpec
	for _, spec := range m.network.Tensors() {
		a, hasFirst := first(spec.Name)
		b, hasSecond := second(spec.Name)
		if !hasFirst && !hasSecond {
			continue
		}
		if len(a.Data) != spec.Size() || len(b.Data) != spec.Size() {
			return false, fmt.Errorf("moments of %s: %d and %d values, want %d", spec.Name, len(a.Data), len(b.Data), spec.Size())
		}
		trained = append(trained, spec)
	}
	if len(trained) == 0 || len(trained) != len(from.FirstMoments) || len(trained) != len(from.SecondMoments) {
		return false, fmt.Errorf("moments of %d and %d tensors after %d updates, %d of them of this model",
			len(from.FirstMoments), len(from.SecondMoments), from.Counters.Updates, len(trained))
	}
	if changed, err = m.hold(trained); err != nil {
		return changed, err
	}
	for _, spec := range trained {
		a, _ := first(spec.Name) // both exist, see above
		b, _ := second(spec.Name)
		if err := errors.Join(m.setMoment(FirstMomentPath(spec.Name), spec, a.Data), m.setMoment(SecondMomentPath(spec.Name), spec, b.Data)); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// setMoment sets the variable of a moment, and creates a missing one; without data it is zero.
func (m moments) setMoment(path string, spec model.TensorSpec, data []float32) error {
	v := m.store.GetVariable(path)
	if v != nil {
		if err := v.Reset(); err != nil { // frees the old value before the new one is made
			return fmt.Errorf("moments of %s: %w", spec.Name, err)
		}
	}
	fresh, err := hostmem.NewTensor(m.backend, spec.Shape, func(flat []float32) { hostmem.Copy(flat[:len(data)], data) })
	if err != nil {
		return fmt.Errorf("moments of %s: %w", spec.Name, err)
	}
	if v != nil {
		if err := v.SetValue(fresh); err != nil {
			return fmt.Errorf("moments of %s: %w", spec.Name, err)
		}
		return nil
	}
	v, err = m.store.CreateVariable(path, fresh)
	if err != nil {
		return fmt.Errorf("moments of %s: %w", spec.Name, err)
	}
	v.SetTrainable(false)
	return nil
}

// forBoth calls fn with the path of the first and of the second moment.
func forBoth(spec model.TensorSpec, fn func(path string) error) error {
	return errors.Join(fn(FirstMomentPath(spec.Name)), fn(SecondMomentPath(spec.Name)))
}
