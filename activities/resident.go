package activities

import (
	"context"
	"errors"
	"slices"

	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// Runs that share a trainer take turns. The states of those that wait stay in
// memory, as long as they have room there: a run that comes back goes on where it
// was, without a restore. What stays is no more than a cache. A state is a function
// of its run's cursor, and one that another trainer may have gone on from is
// forgotten.

// bytesPerParameter is what a learner holds for each: weights, two moments and a
// gradient or a reference policy, in float32.
const bytesPerParameter = 16

// sizeOf estimates the memory of a model's learner in bytes, without activations.
func sizeOf(model qwen3.Config) int64 { return int64(model.NumParameters()) * bytesPerParameter }

func (s *session) size() int64 { return sizeOf(s.model) }

// waiting takes the session of a run out of those that wait; nil when it is not
// there, or was taken over meanwhile. The caller holds t.mu.
func (t *Trainer) waiting(ctx context.Context, runID string) (*session, error) {
	i := slices.IndexFunc(t.parked, func(s *session) bool { return s.run.RunID == runID })
	if i < 0 {
		return nil, nil
	}
	s := t.parked[i]
	err := s.lease.Check(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrFenced) {
		return nil, err // it stays where it is
	}
	t.parked = slices.Delete(t.parked, i, i+1)
	if err != nil {
		s.close()
		return nil, nil
	}
	return s, nil
}

// park lets the current session wait for its run's next turn, and makes room for
// another one of so many bytes. A save that is under way goes on. The caller holds
// t.mu.
func (t *Trainer) park(ctx context.Context, next int64) error {
	if t.session != nil {
		t.parked = append(t.parked, t.session)
		t.session = nil
	}
	for len(t.parked) > 0 && !t.roomBeside(next) {
		if err := t.evict(ctx); err != nil {
			return err
		}
	}
	return nil
}

// roomBeside reports whether all that wait may stay beside a session of so many
// bytes.
func (t *Trainer) roomBeside(next int64) bool {
	sum := next
	for _, s := range t.parked {
		sum += s.size()
	}
	return len(t.parked) <= t.MaxResident && sum <= t.MaxResidentBytes
}

// evict ends the session that has waited longest. A save under way comes to its end
// before: nobody else has its copy.
func (t *Trainer) evict(ctx context.Context) error {
	s := t.parked[0]
	if err := s.flush(ctx); err != nil && !errors.Is(err, checkpoint.ErrFenced) {
		return err
	}
	t.parked = slices.Delete(t.parked, 0, 1)
	s.close()
	return nil
}

// close ends a session and frees its learner.
func (s *session) close() {
	s.abandon()
	s.learner.Close()
}
