package learner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/proc/failpoint"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
	"temper/trainer/optimizer"
)

// session is the training state of one run in this process. It can be rebuilt
// from the newest checkpoint and the stored data and batches since.
type session struct {
	archive
	learner Learner
	cursor  int // of the newest update in the learner
	// stateValid is false while an update is made and after one that failed: then cursor
	// says nothing of the learner.
	stateValid bool
	sft        *sftData
	last       rl.TrainMetrics // of the newest update made here
	samples    int             // of the last RL update
	// reference is the cursor of the reference policy that the learner holds; -1 for none.
	reference int
	// graphs are the settings that the learner was built for; build makes another.
	graphs graphs
	build  func(*run.Loaded) (Learner, error)

	share   Sharing
	lease   *checkpoint.Lease
	onLease func(run string, epoch int64)
	saves   saver
	damaged []int // cursors of checkpoints that could not be read
}

func (s *session) retention() retention {
	return retention{Loaded: s.Loaded, store: s.store, lease: s.lease}
}

// resume prepares a session for another call. It takes the outcome of the last save, and
// acquires the lease again when another trainer has had the run meanwhile. The state still
// belongs to its cursor.
func (s *session) resume(ctx context.Context) error {
	if err := s.saves.takeOutcome(ctx); err != nil && !errors.Is(err, checkpoint.ErrFenced) {
		return err
	}
	err := s.lease.Check(ctx)
	if !errors.Is(err, checkpoint.ErrFenced) {
		return err
	}
	s.saves.abandon()
	return s.acquireLease(ctx)
}

// advance makes the next update of the run. An update that fails or panics may have
// changed a part of the state.
func (s *session) advance(ctx context.Context) error {
	s.stateValid = false
	var err error
	if next := s.cursor + 1; next <= s.Config.SFT.Steps {
		s.last, err = s.sftUpdate(ctx, next)
	} else {
		s.last, err = s.rlUpdate(ctx, next-s.Config.SFT.Steps)
	}
	if err != nil {
		return reportDivergence(ctx, s.store, s.Layout.Diverged(s.cursor+1), err)
	}
	s.cursor, s.stateValid = s.cursor+1, true
	if s.saves.rehearsal {
		return nil
	}
	return s.finishInterruptedSave(ctx)
}

// sftUpdate makes supervised update n, from 1.
func (s *session) sftUpdate(ctx context.Context, n int) (rl.TrainMetrics, error) {
	if s.sft == nil {
		data, err := readSFT(ctx, s.store, s.Loaded)
		if err != nil {
			return rl.TrainMetrics{}, err
		}
		s.sft = data
	}
	return s.learner.SFTStep(ctx, s.sft.batch(n, s.Config.SFT.BatchSize), s.Config.SFT.Optimizer, optimizer.Position{Step: n, Total: s.Config.SFT.Steps})
}

// rlUpdate applies the stored batch of an RL step. A step without one is left
// out: its stage was stopped, or had no problem left, before it.
func (s *session) rlUpdate(ctx context.Context, step int) (rl.TrainMetrics, error) {
	cfg := s.timetable().config(step)
	if err := s.rebuild(cfg); err != nil {
		return rl.TrainMetrics{}, err
	}
	if err := s.ensureReference(ctx, step); err != nil {
		return rl.TrainMetrics{}, err
	}
	if s.timetable().freshMoments(step) {
		if err := s.learner.ResetOptimizer(); err != nil {
			return rl.TrainMetrics{}, err
		}
	}
	built, ok, err := artifact.Lookup[run.BuiltBatch](ctx, s.store, s.Layout.Step(step).BatchStats())
	if err != nil {
		return rl.TrainMetrics{}, blob.AtRef(err, blob.Ref{Key: s.Layout.Step(step).BatchStats()})
	}
	if !ok {
		return rl.TrainMetrics{}, checkLeftOut(ctx, s.store, s.Layout, step)
	}
	s.samples = built.Samples
	if built.Samples == 0 { // no group of the step had a signal
		return rl.TrainMetrics{}, nil
	}
	batch, err := readBatch(ctx, s.store, built.Batch)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	s.recordTokens(ctx, step, batch, cfg.Tracker.TokenStats)
	return s.learner.Update(ctx, batch, optimizer.Update{
		Optimizer: cfg.RL.Optimizer, Position: s.timetable().position(step), NumMinibatches: cfg.RL.NumMinibatches,
	})
}

// rebuild replaces the learner when an amendment changes its settings. The state passes
// through the host with every bit.
func (s *session) rebuild(cfg config.Run) error {
	want := graphsOf(cfg)
	if s.graphs == want {
		return nil
	}
	state, err := s.learner.Snapshot(checkpoint.State{})
	if err != nil {
		return err
	}
	amended := *s.Loaded
	amended.Config = cfg
	learner, err := s.build(&amended)
	if err != nil {
		return fmt.Errorf("learner for the amended configuration: %w", err)
	}
	s.learner.Close()
	s.learner, s.graphs, s.reference = learner, want, -1
	return learner.RestoreState(state)
}

// ensureReference gives the learner the reference policy of an RL step when the objective
// needs one.
func (s *session) ensureReference(ctx context.Context, step int) error {
	want, ok := s.timetable().reference(step)
	if !ok || s.reference == want {
		return nil
	}
	if err := s.loadReference(ctx, want); err != nil {
		return fmt.Errorf("reference policy of %s: %w", s.timetable().name(want), err)
	}
	s.reference = want
	return nil
}

// loadReference makes the policy of a cursor the reference policy. Before the first
// step that refers to it the learner itself is at the cursor, and a checkpoint is made
// and kept; later the policy is read from that checkpoint.
func (s *session) loadReference(ctx context.Context, cursor int) error {
	if s.cursor == cursor {
		if err := s.saveNow(ctx); err != nil {
			return err
		}
		return s.learner.KeepReference()
	}
	saved, err := checkpoint.List(ctx, s.store, s.Layout.Checkpoints())
	if err != nil {
		return err
	}
	for _, c := range saved {
		if c.Step == cursor {
			if err := s.checkFits(ctx, c); err != nil {
				return err
			}
			return s.learner.LoadReference(ctx, s.store, c.Ref)
		}
	}
	return fmt.Errorf("no checkpoint of it is left: %w", blob.ErrNotExist)
}

// save copies the state of the current cursor and begins to store it.
func (s *session) save(ctx context.Context) error {
	if err := s.saves.flush(ctx); err != nil {
		return err
	}
	state, err := s.learner.Snapshot(s.saves.takeRoom())
	if err != nil {
		return err
	}
	if state.About, err = s.about(ctx, s.cursor); err != nil {
		return err
	}
	s.saves.begin(ctx, &upload{cursor: s.cursor, state: state, keep: s.retention(), repair: slices.Contains(s.damaged, s.cursor)})
	return nil
}

// saveNow saves and waits until the checkpoint exists.
func (s *session) saveNow(ctx context.Context) error {
	if err := s.save(ctx); err != nil {
		return err
	}
	return s.saves.flush(ctx)
}

// saveIfAsked saves when asked to, and always checks that results may still be stored. It
// waits for the last checkpoint of a stretch, which no later call might make again.
func (s *session) saveIfAsked(ctx context.Context, asked, last bool) error {
	switch {
	case asked && last:
		return s.saveNow(ctx)
	case asked:
		if err := s.save(ctx); err != nil {
			return err
		}
	}
	return s.lease.Check(ctx)
}

// finishInterruptedSave saves the current cursor when a save was asked for there and
// its process died before the save ended.
func (s *session) finishInterruptedSave(ctx context.Context) error {
	asked, err := s.wasSaved(ctx, s.cursor)
	if err != nil || !asked {
		return err
	}
	entries, err := checkpoint.List(ctx, s.store, s.Layout.Checkpoints())
	if err != nil {
		return err
	}
	cursors := []int{s.cursor}
	for _, e := range entries {
		if e.Step == s.cursor && !slices.Contains(s.damaged, s.cursor) {
			return s.lease.Advance(ctx, e.Step, e.Ref) // the process died between the two
		}
		if e.Step != s.cursor {
			cursors = append(cursors, e.Step)
		}
	}
	slices.Sort(cursors)
	if kept, err := s.retention().reasonsToKeep(ctx, cursors, s.cursor); err != nil || kept[s.cursor] == "" {
		return err
	}
	return s.save(ctx)
}

// publish stores the weights at the current cursor as a policy. It is idempotent.
func (s *session) publish(ctx context.Context) (run.Policy, error) {
	version := int64(s.cursor - s.timetable().cursor(0))
	if err := s.lease.Check(ctx); err != nil {
		return run.Policy{}, err
	}
	form, err := s.share.formOf(ctx, s.Loaded, version)
	if err != nil {
		return run.Policy{}, fmt.Errorf("publish policy %d: %w", version, err)
	}
	ref, err := s.learner.Publish(ctx, s.store, s.Layout.Policy(version).Dir(), checkpoint.Policy{
		Model: s.Model, Tokenizer: s.TokenizerJSON, Files: s.Files, Form: form,
	})
	if err != nil {
		return run.Policy{}, fmt.Errorf("publish policy %d: %w", version, err)
	}
	failpoint.Hit("policy/before-ref")
	return artifact.PutOnce(ctx, s.store, s.Layout.Policy(version).Ref(), run.Policy{Version: version, Ref: ref})
}

// formOf returns the form in which a policy is published: the form of its first
// publication, or the run's.
func (h Sharing) formOf(ctx context.Context, r *run.Loaded, version int64) (checkpoint.Form, error) {
	form := checkpoint.Form{ShardFrom: int64(r.Config.At(int(version)).Checkpoint.ShardPolicies)}
	if h.Memory != nil {
		form.Memory = h.Memory(r.Ref.RunID)
	}
	if h.Published == nil {
		return form, nil
	}
	sharded, ok, err := checkpoint.StoredInShards(ctx, h.Published, r.Layout.Policy(version).Dir())
	if ok {
		form.ShardFrom = 0
	}
	if sharded {
		form.ShardFrom = 1
	}
	return form, err
}

// close ends a session and frees its learner.
func (s *session) close() {
	s.saves.abandon()
	s.learner.Close()
}
