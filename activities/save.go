package activities

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/failpoint"
	"temper/trainer/checkpoint"
)

// A save has two halves. The copy of the state to the host is all that training
// waits for; hashing and storing it goes on in the background. One save is under
// way at a time, so that there is one copy: the next one waits for it, and none
// is skipped, so that which checkpoints a run has does not depend on how fast
// the store is.

// upload is a save under way.
type upload struct {
	cursor int
	state  checkpoint.State
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// save copies the state of the current cursor and begins to store it.
func (s *session) save(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	room := s.room
	s.room = checkpoint.State{}
	state, err := s.learner.Snapshot(room)
	if err != nil {
		return err
	}
	if state.About, err = s.about(ctx, s.at); err != nil {
		return err
	}
	s.beginUpload(ctx, s.at, state)
	return nil
}

// saveNow is save, and waits until the checkpoint exists.
func (s *session) saveNow(ctx context.Context) error {
	if err := s.save(ctx); err != nil {
		return err
	}
	return s.flush(ctx)
}

// saveFor saves when it was asked for, and checks in any case that a result may
// still be stored. The last checkpoint of a stretch is waited for: nobody may come
// back to this run who would make it again.
func (s *session) saveFor(ctx context.Context, asked, last bool) error {
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

// endsStage reports whether a step is the last of its stage.
func (s *session) endsStage(step int) bool {
	return slices.ContainsFunc(planOf(s.run.RunID, s.cfg.At(step)).Stages, func(p StagePlan) bool { return p.FirstStep+p.Steps-1 == step })
}

// beginUpload stores a copied state in the background.
func (s *session) beginUpload(ctx context.Context, cursor int, state checkpoint.State) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u := &upload{cursor: cursor, state: state, cancel: cancel, done: make(chan struct{})}
	s.upload = u
	s.background(func() {
		defer close(u.done)
		defer cancel()
		u.err = s.put(ctx, u)
	})
}

// put stores a checkpoint and deletes what is too old: checkpoints, then policies,
// then trajectories.
func (s *session) put(ctx context.Context, u *upload) error {
	failpoint.Hit("checkpoint/before-shards")
	o := checkpoint.SaveOptions{Lease: s.lease, Repair: slices.Contains(s.damaged, u.cursor)}
	started := s.now()
	ref, err := checkpoint.SaveWith(ctx, s.store, s.layout.Checkpoints(), u.cursor, u.state, o)
	if err != nil {
		return err
	}
	took, size := s.now().Sub(started), u.state.Size()
	inform(ctx, "checkpoint saved", "run_id", s.run.RunID, "checkpoint", u.cursor, "ref", ref.Key, "bytes", size,
		"duration_ms", took.Milliseconds(), "mib_per_s", perSecond(int(size), took)/(1<<20))
	failpoint.Hit("checkpoint/before-prune")
	if err := s.prune(ctx, u.cursor); err != nil {
		return err
	}
	failpoint.Hit("policy/before-prune")
	if err := s.prunePolicies(ctx, u.cursor); err != nil {
		return err
	}
	return s.pruneTrajectories(ctx, u.cursor)
}

// flush waits for the save under way. One that failed is begun again with the
// same copy, and its error returned: the activity is repeated, and no checkpoint
// is lost.
func (s *session) flush(ctx context.Context) error {
	if s.upload == nil {
		return nil
	}
	select {
	case <-s.upload.done:
		return s.outcome(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome is flush for a save that may still be under way: it does not wait.
func (s *session) outcome(ctx context.Context) error {
	u := s.upload
	if u == nil {
		return nil
	}
	select {
	case <-u.done:
	default:
		return nil
	}
	s.upload = nil
	if u.err == nil {
		s.room = u.state
		return nil
	}
	if !errors.Is(u.err, checkpoint.ErrFenced) {
		s.beginUpload(ctx, u.cursor, u.state)
	}
	return fmt.Errorf("checkpoint of %s: %w", s.name(u.cursor), u.err)
}

// abandon ends the save under way; what it stored is found by the next one.
func (s *session) abandon() {
	if s.upload == nil {
		return
	}
	s.upload.cancel()
	<-s.upload.done
	s.upload = nil
}

// owed saves the current cursor again when a save was asked for there and did
// not come to its end before its process did.
func (s *session) owed(ctx context.Context) error {
	asked, err := s.wasSaved(ctx)
	if err != nil || !asked {
		return err
	}
	entries, err := checkpoint.List(ctx, s.store, s.layout.Checkpoints())
	if err != nil {
		return err
	}
	cursors := []int{s.at}
	for _, e := range entries {
		if e.Step == s.at && !slices.Contains(s.damaged, s.at) {
			return s.lease.Advance(ctx, e.Step, e.Ref) // its process died in between
		}
		if e.Step != s.at {
			cursors = append(cursors, e.Step)
		}
	}
	slices.Sort(cursors)
	if kept, err := s.kept(ctx, cursors, s.at); err != nil || kept[s.at] == "" {
		return err
	}
	return s.save(ctx)
}

// wasSaved reports whether the stored result of the current cursor says that a
// checkpoint was asked for.
func (s *session) wasSaved(ctx context.Context) (bool, error) {
	if s.at <= s.cfg.SFT.Steps {
		r, ok, err := artifact.Lookup[SFTRecord](ctx, s.store, s.layout.SFTResult(s.at))
		return ok && r.Saved, err
	}
	r, ok, err := artifact.Lookup[TrainStepResult](ctx, s.store, s.layout.TrainResult(s.at-s.cfg.SFT.Steps))
	return ok && r.Saved, err
}

// prune deletes the checkpoints that nothing keeps, after a save of the cursor.
func (s *session) prune(ctx context.Context, cursor int) error {
	dir := s.layout.Checkpoints()
	entries, err := checkpoint.List(ctx, s.store, dir)
	if err != nil {
		return err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	kept, err := s.kept(ctx, cursors, cursor)
	if err != nil {
		return err
	}
	if err := s.lease.Check(ctx); err != nil {
		return err
	}
	return checkpoint.Prune(ctx, s.store, artifact.Root, dir, func(cursor int) bool { return kept[cursor] != "" })
}

// kept says why checkpoints stay, by cursor; at is the cursor whose settings count.
func (s *session) kept(ctx context.Context, cursors []int, at int) (map[int]string, error) {
	cfg := s.cfg.At(max(0, at-s.cfg.SFT.Steps))
	return Retained(ctx, s.store, s.run.RunID, cfg, cursors)
}

// lead takes the run's lease, for a new session and after another trainer had it.
func (s *session) lead(ctx context.Context) (err error) {
	s.lease, err = checkpoint.Acquire(ctx, s.store, s.layout.Head(), newHolder(), s.newestEpoch)
	return err
}

// newestEpoch is the highest epoch under which a checkpoint of the run was
// written: what is known of the lease without a head.
func (s *session) newestEpoch(ctx context.Context) (int64, error) {
	entries, err := checkpoint.List(ctx, s.store, s.layout.Checkpoints())
	if err != nil {
		return 0, err
	}
	newest := int64(0)
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, s.store, e.Ref)
		if err == nil {
			newest = max(newest, d.Epoch)
		} else if !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) {
			return 0, err
		}
	}
	return newest, nil
}

// newHolder names a holder of a lease as no other is named.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:12])
}

// CloseTrainer ends the trainer's sessions after its worker has stopped. A save
// under way gets the time of patience to come to its end; one that does not is
// made again by whoever goes on with the run.
func CloseTrainer(t *Trainer, patience time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := time.After(patience)
	for _, s := range append(t.parked, t.session) {
		if s != nil && s.upload != nil {
			select {
			case <-s.upload.done:
			case <-late:
				late = time.After(0) // for the others
			}
		}
	}
	for _, s := range t.parked {
		s.close()
	}
	t.parked = nil
	t.drop()
}

// drop ends the session. The caller holds t.mu.
func (t *Trainer) drop() {
	if t.session == nil {
		return
	}
	t.session.close()
	t.session = nil
}
