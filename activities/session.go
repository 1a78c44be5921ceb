package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// Learner is the training state of one policy: weights, optimizer, counters.
// trainer.Trainer implements it.
type Learner interface {
	Init(seed uint64) error
	Import(weights []qwen3.Tensor) error
	SFTStep(ctx context.Context, samples []rl.Sample, o config.Optimizer, p trainer.Position) (rl.TrainMetrics, error)
	Update(ctx context.Context, batch rl.Batch, o trainer.UpdateOptions) (rl.TrainMetrics, error)
	ResetOptimizer() error
	KeepReference() error
	LoadReference(ctx context.Context, store blob.Store, ref blob.Ref) error
	// Snapshot copies the state to the host; the copy shares nothing with the learner.
	// It may take the memory of room, an earlier copy that nobody reads any more.
	Snapshot(room checkpoint.State) (checkpoint.State, error)
	// RestoreState replaces the state by a snapshot, also one of another learner.
	RestoreState(s checkpoint.State) error
	Restore(ctx context.Context, store blob.Store, ref blob.Ref) (step int, err error)
	Publish(ctx context.Context, store blob.Store, prefix string, p checkpoint.Policy) (blob.Ref, error)
	Close()
}

var _ Learner = (*trainer.Trainer)(nil)

// A run's training counts updates in one cursor: the supervised updates first,
// then the RL steps. A checkpoint's step is its cursor.

// session is the training state of one run in this process. It can be rebuilt
// from the newest checkpoint and the stored data and batches since.
type session struct {
	*runContext
	store   blob.Store
	learner Learner
	at      int  // cursor
	known   bool // at describes the learner; false while an update is made and after one that failed
	sft     *sftData
	last    rl.TrainMetrics // of the newest update made here
	// reference is the cursor of the reference policy that the learner holds; -1 for none.
	reference int
	// graphs are the settings that the learner was built for; renew builds another.
	graphs graphs
	renew  func(config.Run) (Learner, error)

	lease      *checkpoint.Lease
	upload     *upload          // the save under way; nil for none
	room       checkpoint.State // the copy of the save before, whose memory the next one takes
	background func(task func())
	now        func() time.Time
	damaged    []int  // cursors of checkpoints that could not be read
	frozen     []byte // config.yaml; nil until it is needed
}

// graphs are the settings that a learner cannot change any more.
type graphs struct {
	Loss             config.Loss
	Temperature      float64
	MicrobatchTokens int
}

func graphsOf(cfg config.Run) graphs {
	return graphs{Loss: cfg.RL.Loss, Temperature: cfg.Rollout.Temperature, MicrobatchTokens: cfg.RL.MicrobatchTokens}
}

// cursor of an RL step.
func (s *session) cursor(step int) int { return s.cfg.SFT.Steps + step }

// name says which update a cursor stands for.
func (s *session) name(cursor int) string {
	if cursor <= s.cfg.SFT.Steps {
		return fmt.Sprintf("SFT update %d", cursor)
	}
	return fmt.Sprintf("step %d", cursor-s.cfg.SFT.Steps)
}

// open makes the run's session the current one. The caller holds t.mu.
func (t *Trainer) open(ctx context.Context, run RunRef) (*session, error) {
	if t.session != nil && t.session.run == run {
		return t.session, t.session.resume(ctx)
	}
	rc, err := loadRun(ctx, t.Store, run)
	if err != nil {
		return nil, err
	}
	if t.session != nil && t.session.run.RunID == run.RunID {
		t.session.runContext = rc // amended: what was made stays as it is
		return t.session, t.session.resume(ctx)
	}
	back, err := t.waiting(ctx, run.RunID)
	if err != nil {
		return nil, err
	}
	if back != nil {
		return t.takeBack(ctx, back, rc)
	}
	if err := t.park(ctx, sizeOf(rc.model)); err != nil {
		return nil, err
	}
	return t.first(ctx, rc)
}

// takeBack makes a session that waited the current one.
func (t *Trainer) takeBack(ctx context.Context, s *session, rc *runContext) (*session, error) {
	if err := t.park(ctx, s.size()); err != nil {
		t.parked = append(t.parked, s)
		return nil, err
	}
	s.runContext = rc
	t.session = s
	return s, s.resume(ctx)
}

// first makes a session of a run that has none here.
func (t *Trainer) first(ctx context.Context, rc *runContext) (*session, error) {
	learner, err := t.NewLearner(rc.cfg, rc.model)
	if err != nil {
		return nil, fmt.Errorf("learner of run %s: %w", rc.run.RunID, err)
	}
	background := t.Background
	if background == nil {
		background = func(task func()) { go task() }
	}
	s := &session{
		background: background, now: t.Now,
		runContext: rc, store: t.Store, learner: learner, reference: -1, graphs: graphsOf(rc.cfg),
		renew: func(cfg config.Run) (Learner, error) { return t.NewLearner(cfg, rc.model) },
	}
	if err := s.lead(ctx); err != nil {
		learner.Close()
		return nil, err
	}
	t.session = s
	return s, nil
}

// resume goes on with a session in another activity: it learns how the save
// under way ended, and takes the lease back when another trainer made the
// activities between. The state is still that of its cursor.
func (s *session) resume(ctx context.Context) error {
	if err := s.outcome(ctx); err != nil && !errors.Is(err, checkpoint.ErrFenced) {
		return err
	}
	err := s.lease.Check(ctx)
	if !errors.Is(err, checkpoint.ErrFenced) {
		return err
	}
	s.abandon()
	return s.lead(ctx)
}

// seek brings the current session to a cursor, by going on from where it is, or
// from the newest checkpoint before.
func (t *Trainer) seek(ctx context.Context, want int) error {
	s := t.session
	if !s.known || s.at > want || s.at+1 < want {
		t.doing.Store("restoring")
		if err := s.restore(ctx, want); err != nil {
			return fmt.Errorf("restore run %s: %w", s.run.RunID, err)
		}
	}
	for s.at < want {
		t.doing.Store(s.name(s.at + 1))
		if err := s.advance(ctx); err != nil {
			return fmt.Errorf("run %s, %s: %w", s.run.RunID, s.name(s.at+1), err)
		}
	}
	return nil
}

// advance makes the next update of the run. One that fails, or panics, may have
// changed a part of the state.
func (s *session) advance(ctx context.Context) error {
	s.known = false
	var err error
	if next := s.at + 1; next <= s.cfg.SFT.Steps {
		s.last, err = s.sftUpdate(ctx, next)
	} else {
		s.last, err = s.rlUpdate(ctx, next-s.cfg.SFT.Steps)
	}
	if err != nil {
		return s.reported(ctx, err)
	}
	s.at, s.known = s.at+1, true
	return s.owed(ctx)
}

// reported stores what a diverged update says of itself; the error then says where.
func (s *session) reported(ctx context.Context, err error) error {
	var diverged *trainer.DivergedError
	if !errors.As(err, &diverged) {
		return err
	}
	where, saveErr := diverged.Save(ctx, s.store, s.layout.Diverged(s.at+1))
	if saveErr != nil {
		return fmt.Errorf("%w; no report: %v", err, saveErr) //nolint:errorlint // the divergence decides what happens next
	}
	return fmt.Errorf("%w; report in %s", err, where)
}

// sftUpdate makes supervised update n, from 1.
func (s *session) sftUpdate(ctx context.Context, n int) (rl.TrainMetrics, error) {
	if s.sft == nil {
		var err error
		if s.sft, err = readSFT(ctx, s.store, s.runContext); err != nil {
			s.sft = nil
			return rl.TrainMetrics{}, err
		}
	}
	return s.learner.SFTStep(ctx, s.sft.batch(n, s.cfg.SFT.BatchSize), s.cfg.SFT.Optimizer, trainer.Position{Step: n, Total: s.cfg.SFT.Steps})
}

// rlUpdate applies the stored batch of an RL step. A step without one is left
// out: its stage was stopped, or had no problem left, before it.
func (s *session) rlUpdate(ctx context.Context, step int) (rl.TrainMetrics, error) {
	cfg := s.cfg.At(step)
	if err := s.rebuild(cfg); err != nil {
		return rl.TrainMetrics{}, err
	}
	if err := s.refer(ctx, step); err != nil {
		return rl.TrainMetrics{}, err
	}
	position := s.schedule(step)
	if s.freshMoments(step) {
		if err := s.learner.ResetOptimizer(); err != nil {
			return rl.TrainMetrics{}, err
		}
	}
	built, ok, err := artifact.Lookup[BuildBatchResult](ctx, s.store, s.layout.BatchStats(step))
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	if !ok || built.Samples == 0 { // none, or no group of the step had a signal
		return rl.TrainMetrics{}, nil
	}
	data, err := blob.ReadRef(ctx, s.store, built.Batch)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	var batch rl.Batch
	if err := json.Unmarshal(data, &batch); err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("%s: %w: %w", s.store.Locate(s.layout.Batch(step)), err, blob.ErrCorrupt)
	}
	return s.learner.Update(ctx, batch, trainer.UpdateOptions{
		Optimizer: cfg.RL.Optimizer, Position: position, NumMinibatches: cfg.RL.NumMinibatches,
	})
}

// rebuild replaces the learner by one for other settings, where an amendment
// says so. The state goes over by way of the host, with every bit of it.
func (s *session) rebuild(cfg config.Run) error {
	want := graphsOf(cfg)
	if s.graphs == want {
		return nil
	}
	state, err := s.learner.Snapshot(checkpoint.State{})
	if err != nil {
		return err
	}
	learner, err := s.renew(cfg)
	if err != nil {
		return fmt.Errorf("learner for the amended configuration: %w", err)
	}
	s.learner.Close()
	s.learner, s.graphs, s.reference = learner, want, -1
	return learner.RestoreState(state)
}

// refer gives the learner the reference policy of an RL step, where the
// objective asks for one: the policy after SFT, and from a stage on that resets
// the optimizer as a whole, the one at that stage's start.
func (s *session) refer(ctx context.Context, step int) error {
	if s.cfg.RL.Loss.KL.Coefficient == 0 {
		return nil
	}
	want := s.cfg.SFT.Steps
	for _, p := range planOf(s.run.RunID, s.cfg.At(step)).Stages {
		if p.FirstStep <= step && s.cfg.Stages[p.Source()-1].ResetOptimizer {
			want = s.cursor(p.FirstStep - 1)
		}
	}
	if s.reference == want {
		return nil
	}
	if err := s.loadReference(ctx, want); err != nil {
		return fmt.Errorf("reference policy of %s: %w", s.name(want), err)
	}
	s.reference = want
	return nil
}

// loadReference takes the policy of a cursor from the learner, which is there
// before the first step that refers to it, or from the checkpoint that is then
// made and kept of it.
func (s *session) loadReference(ctx context.Context, cursor int) error {
	if s.at == cursor {
		if err := s.saveNow(ctx); err != nil {
			return err
		}
		return s.learner.KeepReference()
	}
	saved, err := checkpoint.List(ctx, s.store, s.layout.Checkpoints())
	if err != nil {
		return err
	}
	for _, c := range saved {
		if c.Step == cursor {
			if err := s.fits(ctx, c); err != nil {
				return err
			}
			return s.learner.LoadReference(ctx, s.store, c.Ref)
		}
	}
	return fmt.Errorf("no checkpoint of it is left: %w", blob.ErrNotExist)
}

// freshMoments says whether the optimizer forgets its moments before a step: at
// the first step of all and at the first of each stage that asks for it.
func (s *session) freshMoments(step int) bool {
	for _, p := range planOf(s.run.RunID, s.cfg.At(step)).Stages {
		if p.FirstStep == step {
			return step == 1 || s.cfg.Stages[p.Source()-1].FreshMoments()
		}
	}
	return false
}

// schedule is the place of a step in its stretch of the learning-rate schedule.
// A stretch begins at the first step of all and at the first of each stage that
// asks for it.
func (s *session) schedule(step int) trainer.Position {
	begin, end := 1, 0
	for _, p := range planOf(s.run.RunID, s.cfg.At(step)).Stages {
		if p.FirstStep > 1 && s.cfg.Stages[p.Source()-1].FreshSchedule() {
			if p.FirstStep > step {
				break
			}
			begin = p.FirstStep
		}
		end = p.FirstStep + p.Steps - 1
	}
	return trainer.Position{Step: step - begin + 1, Total: end - begin + 1}
}
