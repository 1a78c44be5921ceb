package learner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// restore loads the newest checkpoint at or before want, unless the state is as
// far already; without a checkpoint it starts over. The head names the newest;
// the list of what is stored counts where the head is too new, or what it names
// cannot be read. An unreadable checkpoint is passed over: all updates since an
// older one can be made again.
func (s *session) restore(ctx context.Context, want int) error {
	if s.at > want {
		s.valid = false
	}
	head := s.lease.Head()
	named := checkpoint.Entry{Step: head.Step, Ref: head.Manifest}
	if !named.Ref.IsZero() && named.Step <= want {
		if s.valid && named.Step <= s.at {
			return nil
		}
		if ok, err := s.load(ctx, named); ok || err != nil {
			return err
		}
	}
	if ok, err := s.loadListed(ctx, want, named); ok || err != nil {
		return err
	}
	if s.valid {
		return nil
	}
	if from := s.Config.Fork; from.RunID != "" {
		return fault.Newf(fault.Corrupt, "no readable checkpoint is left of this fork of run %s, step %d: fork that run again", from.RunID, from.Step)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.at, s.valid = 0, true
	return nil
}

// loadListed loads the newest readable checkpoint at or before want that the list
// has, but the one that the head named.
func (s *session) loadListed(ctx context.Context, want int, named checkpoint.Entry) (ok bool, err error) {
	saved, err := checkpoint.List(ctx, s.store, s.Layout.Checkpoints())
	if err != nil {
		return false, err
	}
	for _, c := range slices.Backward(saved) {
		if c.Step > want || s.valid && c.Step <= s.at || c == named {
			continue
		}
		if ok, err := s.load(ctx, c); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// load restores a checkpoint of this run. One that cannot be read is ok = false,
// and the operator is told.
func (s *session) load(ctx context.Context, c checkpoint.Entry) (ok bool, err error) {
	err = s.fits(ctx, c)
	if err == nil {
		s.valid = false
		_, err = s.learner.Restore(ctx, s.store, c.Ref)
	}
	switch {
	case err == nil:
		s.at, s.valid = c.Step, true
		return true, nil
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, blob.ErrCorrupt):
		s.damaged = append(s.damaged, c.Step)
		s.saves.log.WarnContext(ctx, "checkpoint is unreadable, taking an older one", "run_id", s.Ref.RunID, "ref", c.Ref.Key, "err", err)
		return false, s.warnOperator(ctx, fmt.Sprintf("checkpoint of %s is unreadable, an older one is taken and the updates since are made again: %v", s.timetable().name(c.Step), err))
	default:
		return false, err
	}
}

// fits refuses a checkpoint that is not of this run. It is no older one that
// would help then: somebody has put together what does not belong together.
func (s *session) fits(ctx context.Context, c checkpoint.Entry) error {
	d, err := checkpoint.Describe(ctx, s.store, c.Ref)
	if err != nil {
		return err
	}
	want, err := s.about(ctx, c.Step)
	if err != nil {
		return err
	}
	if err := d.Fits(want, s.Model); err != nil {
		return fmt.Errorf("checkpoint of %s in %s: %w: put back the configuration that it was made with, or move the folder away and the run goes on from an older one",
			s.timetable().name(c.Step), s.store.Locate(path.Dir(c.Ref.Key)), err)
	}
	return nil
}

// about says where in the run a cursor is.
func (s *session) about(ctx context.Context, cursor int) (checkpoint.About, error) {
	step := max(0, cursor-s.Config.SFT.Steps)
	a := checkpoint.About{Run: s.Ref.RunID, Seed: s.Config.Seed, MetricsStep: step}
	var err error
	if a.ConfigSHA256, err = s.configHash(ctx, step); err != nil {
		return a, err
	}
	cfg := s.Config.At(step)
	for _, p := range run.PlanOf(s.Ref.RunID, cfg).Stages {
		if step >= p.FirstStep && step < p.FirstStep+p.Steps {
			a.Stage, a.StageStep = p.Index, step-p.FirstStep+1
			a.LedgerProblems = a.StageStep * cfg.RL.ProblemsPerStep
		}
	}
	return a, nil
}

// configHash is the hash of config.yaml, and of the keys that amendments up to
// the step have changed. It is made of what is stored: a program with other
// defaults gets the same.
func (s *session) configHash(ctx context.Context, step int) (string, error) {
	if s.frozen == nil {
		data, err := blob.ReadKey(ctx, s.store, s.Layout.Config())
		if err != nil {
			return "", fmt.Errorf("configuration of run %s: %w", s.Ref.RunID, err)
		}
		s.frozen = data
	}
	sum := sha256.New()
	sum.Write(s.frozen)
	for _, a := range s.Config.Amendments {
		if a.FromStep > step || len(a.Set) == 0 {
			continue
		}
		data, err := json.Marshal(a.Set)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "from step %d: %s\n", a.FromStep, data)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// warnOperator enters a warning into the run's event log.
func (s *session) warnOperator(ctx context.Context, text string) error {
	now := s.now()
	_, err := artifact.PutOnce(ctx, s.store, s.Layout.Event(now.UnixNano(), "warning", text),
		run.Event{Run: s.Ref, Time: now, Kind: "warning", Text: text})
	return err
}

// begin gives the learner the weights that the run starts from.
func (s *session) begin(ctx context.Context) error {
	if s.Start == nil {
		return s.learner.Init(rl.Seed(s.Config.Seed, "init"))
	}
	p, err := checkpoint.LoadWeights(ctx, s.store, s.Start.Policy)
	if err != nil {
		return err
	}
	return s.learner.Import(p.Weights)
}

// wasSaved reports whether the stored result of a cursor says that a checkpoint
// was asked for there.
func (s *session) wasSaved(ctx context.Context, cursor int) (bool, error) {
	if cursor <= s.Config.SFT.Steps {
		r, ok, err := artifact.Lookup[run.SFTRecord](ctx, s.store, s.Layout.SFTResult(cursor))
		return ok && r.Saved, err
	}
	r, ok, err := artifact.Lookup[run.Trained](ctx, s.store, s.Layout.TrainResult(cursor-s.Config.SFT.Steps))
	return ok && r.Saved, err
}
