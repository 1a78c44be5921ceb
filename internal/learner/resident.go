package learner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// Runs that share a trainer take turns. The states of waiting runs stay in memory as far
// as they fit, so that a run continues without a restore. They are a cache: a state is a
// function of its run's cursor, and is dropped when another trainer may have continued
// the run.

// bytesPerParameter is the memory of a learner for each parameter: the weight, two moments,
// and a gradient or a reference policy, in float32.
const bytesPerParameter = 16

// sizeOf estimates the memory of a run's learner in bytes, without activations.
func sizeOf(r *run.Loaded) int64 { return r.NumParameters() * bytesPerParameter }

// open makes the run's session the current one.
func (t *Service) open(ctx context.Context, ref run.Ref) (*session, error) {
	if t.current != nil && t.current.Ref == ref {
		return t.current, t.current.resume(ctx)
	}
	r, err := run.Load(ctx, t.Store, ref)
	if err != nil {
		return nil, err
	}
	if t.current != nil && t.current.Ref.RunID == ref.RunID {
		t.current.Loaded = r // amended: what was made stays as it is
		return t.current, t.current.resume(ctx)
	}
	back, err := t.parked.removeSession(ctx, ref.RunID)
	if err != nil {
		return nil, err
	}
	if err := t.parkCurrent(ctx, sizeOf(r)); err != nil {
		if back != nil {
			t.parked.sessions = append(t.parked.sessions, back)
		}
		return nil, err
	}
	if back == nil {
		return t.newSession(ctx, r)
	}
	back.Loaded = r
	t.current = back
	return back, back.resume(ctx)
}

// newSession makes a session of a run that has none here.
func (t *Service) newSession(ctx context.Context, r *run.Loaded) (*session, error) {
	learner, err := t.New(r)
	if err != nil {
		return nil, fmt.Errorf("learner of run %s: %w", r.Ref.RunID, err)
	}
	s := &session{
		archive: archive{Loaded: r, store: t.Store, now: t.Now}, learner: learner, reference: -1, graphs: graphsOf(r.Config), build: t.New, onLease: t.OnLease, share: t.Sharing,
		saves: saver{background: t.Background, now: t.Now, log: t.Log, rehearsal: t.Rehearsal},
	}
	if err := s.acquireLease(ctx); err != nil {
		learner.Close()
		return nil, err
	}
	t.current = s
	return s, nil
}

// parkCurrent keeps the current session in memory for its run's next turn, and makes room
// for a session of next bytes. A running save continues.
func (t *Service) parkCurrent(ctx context.Context, next int64) error {
	if t.current != nil {
		t.parked.sessions = append(t.parked.sessions, t.current)
		t.current = nil
	}
	return t.parked.makeRoom(ctx, next)
}

// residents holds the sessions of waiting runs, the longest waiting first.
type residents struct {
	limits   *Config
	sessions []*session
}

// removeSession removes and returns the session of a run; nil when it is not there, or was
// taken over by another trainer meanwhile.
func (r *residents) removeSession(ctx context.Context, runID string) (*session, error) {
	i := slices.IndexFunc(r.sessions, func(s *session) bool { return s.Ref.RunID == runID })
	if i < 0 {
		return nil, nil
	}
	s := r.sessions[i]
	err := s.lease.Check(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrFenced) {
		return nil, err // it stays where it is
	}
	r.sessions = slices.Delete(r.sessions, i, i+1)
	if err != nil {
		s.close()
		return nil, nil
	}
	return s, nil
}

// makeRoom ends sessions until the others fit beside a session of next bytes, the longest
// waiting first. Each ends after its running save, which has the only copy of its state.
func (r *residents) makeRoom(ctx context.Context, next int64) error {
	for len(r.sessions) > 0 && !r.fitBeside(next) {
		s := r.sessions[0]
		if err := s.saves.flush(ctx); err != nil && !errors.Is(err, checkpoint.ErrFenced) {
			return err
		}
		r.sessions = slices.Delete(r.sessions, 0, 1)
		s.close()
	}
	return nil
}

// fitBeside reports whether all fit beside a session of next bytes.
func (r *residents) fitBeside(next int64) bool {
	sum := next
	for _, s := range r.sessions {
		sum += sizeOf(s.Loaded)
	}
	return len(r.sessions) <= r.limits.MaxResident && sum <= r.limits.MaxResidentBytes
}

func (r *residents) close() {
	for _, s := range r.sessions {
		s.close()
	}
	r.sessions = nil
}
