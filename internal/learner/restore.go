package learner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
)

// restore loads the newest checkpoint at or before want, unless the state is as far
// already. Without a checkpoint it starts over. The head names the newest one; where
// that is too new, or cannot be read, the list of checkpoints is searched. An
// unreadable checkpoint is passed over: the updates since an older one can be made
// again.
func (s *session) restore(ctx context.Context, want int) error {
	if s.cursor > want {
		s.stateValid = false
	}
	head := s.lease.Head()
	named := checkpoint.Entry{Step: head.Step, Ref: head.Manifest}
	if !named.Ref.IsZero() && named.Step <= want {
		if s.stateValid && named.Step <= s.cursor {
			return nil
		}
		if ok, err := s.loadCheckpoint(ctx, named); ok || err != nil {
			return err
		}
	}
	if ok, err := s.loadListed(ctx, want, named); ok || err != nil {
		return err
	}
	if s.stateValid {
		return nil
	}
	if from := s.Config.Fork; from.RunID != "" {
		return fault.Newf(fault.Corrupt, "no readable checkpoint is left of this fork of run %s, step %d: fork that run again", from.RunID, from.Step)
	}
	if err := s.loadStart(ctx); err != nil {
		return err
	}
	s.cursor, s.stateValid = 0, true
	return nil
}

// loadListed loads the newest readable checkpoint of the list at or before want,
// except the one that the head named.
func (s *session) loadListed(ctx context.Context, want int, named checkpoint.Entry) (ok bool, err error) {
	saved, err := checkpoint.List(ctx, s.store, s.Layout.Checkpoints())
	if err != nil {
		return false, err
	}
	for _, c := range slices.Backward(saved) {
		if c.Step > want || s.stateValid && c.Step <= s.cursor || c == named {
			continue
		}
		if ok, err := s.loadCheckpoint(ctx, c); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// loadCheckpoint restores a checkpoint of this run. It returns ok = false, and warns
// the operator, when the checkpoint cannot be read.
func (s *session) loadCheckpoint(ctx context.Context, c checkpoint.Entry) (ok bool, err error) {
	err = s.checkFits(ctx, c)
	if err == nil {
		s.stateValid = false
		_, err = s.learner.Restore(ctx, s.store, c.Ref)
	}
	switch {
	case err == nil:
		s.cursor, s.stateValid = c.Step, true
		return true, nil
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, blob.ErrCorrupt):
		s.damaged = append(s.damaged, c.Step)
		s.saves.log.WarnContext(ctx, "checkpoint is unreadable, taking an older one", "run_id", s.Ref.RunID, "ref", c.Ref.Key, "err", err)
		return false, s.warnOperator(ctx, fmt.Sprintf("checkpoint of %s is unreadable, an older one is taken and the updates since are made again: %v", s.timetable().name(c.Step), err))
	default:
		return false, err
	}
}

// loadStart gives the learner the weights that the run starts from.
func (s *session) loadStart(ctx context.Context) error {
	if s.Start == nil {
		return s.learner.Init(rl.Seed(s.Config.Seed, "init"))
	}
	p, err := checkpoint.LoadWeights(ctx, s.store, s.Start.Policy)
	if err != nil {
		return err
	}
	return s.learner.Import(p.Weights)
}
