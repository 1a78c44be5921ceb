package optimizer

import (
	"fmt"

	"temper/trainer/checkpoint"
	"temper/trainer/device"
)

// Savepoint is what a step of several updates changes, as it was before the step.
// The copies are buffers of the device; nothing goes by way of the host. The zero
// value belongs to a step of one update, which changes everything or nothing by
// itself.
type Savepoint struct {
	counters checkpoint.Counters
	copies   []device.Value // in the order of Variables
}

// Savepoint takes over copies of the variables that an update changes, in the order
// of Variables. The caller releases it.
func (s *State) Savepoint(copies []device.Value) *Savepoint {
	return &Savepoint{counters: s.counters, copies: copies}
}

// GoBack makes the state that of a savepoint again, and uses the savepoint up.
func (s *State) GoBack(to *Savepoint) error {
	if to.copies == nil {
		return nil
	}
	s.Revision++
	for i, v := range Variables(s.store, s.tuning) {
		if err := to.copies[i].Assign(v); err != nil {
			s.ready = false
			return fmt.Errorf("take back %s: %w", v.Path(), err)
		}
	}
	to.copies = nil // they are the state now
	s.counters, s.ready = to.counters, true
	return nil
}

// Release frees the copies that were not needed.
func (p *Savepoint) Release() {
	device.Release(p.copies...)
	p.copies = nil
}
