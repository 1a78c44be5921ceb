package learner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"temper/internal/proc/failpoint"
	"temper/internal/series"
	"temper/trainer/checkpoint"
)

// A save has two halves. Training waits for the copy of the state to the host; hashing and
// storing the copy runs in the background. One save runs at a time, so that there is one
// copy, and the next save waits for it. No save is skipped: the checkpoints of a run do not
// depend on the speed of the store.

// saver stores copies of a run's training state. Its methods are called by one
// goroutine at a time.
type saver struct {
	background func(task func())
	now        func() time.Time
	log        *slog.Logger
	rehearsal  bool // see Config

	upload *upload          // the save under way; nil for none
	room   checkpoint.State // the copy of the save before, whose memory the next one takes
}

// upload is a running save.
type upload struct {
	cursor int
	state  checkpoint.State
	keep   retention
	repair bool // a damaged checkpoint of the cursor is in the store
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// takeRoom returns the memory of the last copy for reuse.
func (v *saver) takeRoom() checkpoint.State {
	room := v.room
	v.room = checkpoint.State{}
	return room
}

// begin stores a copied state in the background.
func (v *saver) begin(ctx context.Context, u *upload) {
	ctx, u.cancel = context.WithCancel(context.WithoutCancel(ctx))
	u.done = make(chan struct{})
	v.upload = u
	v.background(func() {
		defer close(u.done)
		defer u.cancel()
		u.err = v.store(ctx, u)
	})
}

// store stores a checkpoint and deletes checkpoints that no rule keeps.
func (v *saver) store(ctx context.Context, u *upload) error {
	failpoint.Hit("checkpoint/before-shards")
	k := u.keep
	started := v.now()
	ref, err := checkpoint.SaveWith(ctx, k.store, k.Layout.Checkpoints(), u.cursor, u.state, checkpoint.SaveOptions{Lease: k.lease, Repair: u.repair})
	if err != nil {
		return err
	}
	took, size := v.now().Sub(started), u.state.Size()
	v.log.InfoContext(ctx, "checkpoint saved", "run_id", k.Ref.RunID, "checkpoint", u.cursor, "ref", ref.Key, "bytes", size,
		"duration_ms", took.Milliseconds(), "mib_per_s", series.PerSecond(int(size), took)/(1<<20))
	if v.rehearsal {
		return nil
	}
	err = k.prune(ctx, u.cursor)
	if errors.Is(err, checkpoint.ErrUncollected) { // what another run has damaged ends no run
		v.log.WarnContext(ctx, "some of what the run does not keep stays in the store", "run_id", k.Ref.RunID, "checkpoint", u.cursor, "err", err)
		return nil
	}
	return err
}

// flush waits for the running save. When the save failed, flush starts it again with the
// same copy and returns the error: the activity is retried, and no checkpoint is lost.
func (v *saver) flush(ctx context.Context) error {
	if v.upload == nil {
		return nil
	}
	select {
	case <-v.upload.done:
		return v.takeOutcome(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeOutcome is flush without the wait: a running save continues.
func (v *saver) takeOutcome(ctx context.Context) error {
	u := v.upload
	if u == nil {
		return nil
	}
	select {
	case <-u.done:
	default:
		return nil
	}
	v.upload = nil
	if u.err == nil {
		v.room = u.state
		return nil
	}
	if !errors.Is(u.err, checkpoint.ErrFenced) {
		v.begin(ctx, &upload{cursor: u.cursor, state: u.state, keep: u.keep, repair: u.repair})
	}
	return fmt.Errorf("checkpoint of %s: %w", u.keep.timetable().name(u.cursor), u.err)
}

// abandon ends the running save. The next save finds what it stored.
func (v *saver) abandon() {
	if v.upload == nil {
		return
	}
	v.upload.cancel()
	<-v.upload.done
	v.upload = nil
}

// wait waits until late for the running save, and reports whether it ended.
func (v *saver) wait(late <-chan time.Time) bool {
	if v.upload == nil {
		return true
	}
	select {
	case <-v.upload.done:
		return true
	case <-late:
		return false
	}
}
