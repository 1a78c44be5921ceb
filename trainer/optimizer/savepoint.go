package optimizer

import (
	"fmt"

	"temper/trainer/checkpoint"
	"temper/trainer/device"
)

// Savepoint holds the variables that an update changes, as they were before a step of several
// updates. The copies are buffers of the device. The zero value belongs to a step of one
// update, which changes everything or nothing.
type Savepoint struct {
	counters checkpoint.Counters
	copies   []device.Value // in the order of Variables
}

// Savepoint takes ownership of copies of the variables that an update changes, in the order of
// Variables. The caller releases it.
func (s *State) Savepoint(copies []device.Value) *Savepoint {
	return &Savepoint{counters: s.counters, copies: copies}
}

// GoBack restores the state of a savepoint, which is empty afterwards.
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
	to.copies = nil // they belong to the state now
	s.counters, s.ready = to.counters, true
	return nil
}

// Release frees the copies.
func (p *Savepoint) Release() {
	device.Release(p.copies...)
	p.copies = nil
}
