package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// Learner is the training state of one policy: weights, optimizer, counters.
// trainer.Trainer implements it.
type Learner interface {
	Init(seed uint64) error
	SFTStep(ctx context.Context, samples []rl.Sample, o config.Optimizer, p trainer.Position) (rl.TrainMetrics, error)
	Update(ctx context.Context, batch rl.Batch, o trainer.UpdateOptions) (rl.TrainMetrics, error)
	ResetOptimizer() error
	Save(ctx context.Context, store blob.Store, prefix string, step int) (blob.Ref, error)
	Restore(ctx context.Context, store blob.Store, ref blob.Ref) (step int, err error)
	Publish(ctx context.Context, store blob.Store, prefix string, tokenizerJSON []byte) (blob.Ref, error)
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
	at      int         // cursor
	known   bool        // at describes the learner; false after an error in an update
	rows    []rl.Sample // the supervised data as tokens
	epoch   int         // of order
	order   []int       // of rows
	last    rl.TrainMetrics
}

// seek brings the training state of a run to a position, by going on from where
// it is, or from the newest checkpoint before.
func (t *Trainer) seek(ctx context.Context, run RunRef, want int) (*session, error) {
	s, err := t.open(ctx, run)
	if err != nil {
		return nil, err
	}
	if !s.known || s.at > want {
		if err := s.restore(ctx, want); err != nil {
			return nil, fmt.Errorf("restore run %s: %w", run.RunID, err)
		}
	}
	for s.at < want {
		if err := s.advance(ctx); err != nil {
			return nil, fmt.Errorf("run %s, %s: %w", run.RunID, s.name(s.at+1), err)
		}
	}
	return s, nil
}

func (t *Trainer) open(ctx context.Context, run RunRef) (*session, error) {
	if t.session != nil && t.session.run == run {
		return t.session, nil
	}
	rc, err := loadRun(ctx, t.Store, run)
	if err != nil {
		return nil, err
	}
	if t.session != nil {
		t.session.learner.Close()
		t.session = nil
	}
	learner, err := t.NewLearner(rc.cfg, rc.format.Tokenizer().VocabSize())
	if err != nil {
		return nil, fmt.Errorf("learner of run %s: %w", run.RunID, err)
	}
	t.session = &session{runContext: rc, store: t.Store, learner: learner}
	return t.session, nil
}

// restore loads the newest checkpoint at or before want, or starts over.
func (s *session) restore(ctx context.Context, want int) error {
	s.known = false
	saved, err := checkpoint.List(ctx, s.store, s.layout.Checkpoints())
	if err != nil {
		return err
	}
	best := checkpoint.Entry{}
	for _, c := range saved {
		if c.Step <= want && c.Step >= best.Step {
			best = c
		}
	}
	if best.Ref.IsZero() {
		err = s.learner.Init(rl.Seed(s.cfg.Seed, "init"))
	} else {
		_, err = s.learner.Restore(ctx, s.store, best.Ref)
	}
	s.at, s.known = best.Step, err == nil
	return err
}

// save writes a checkpoint of the current cursor and deletes what is too old:
// the newest ones stay, and the last of SFT and of each stage.
func (s *session) save(ctx context.Context) error {
	dir := s.layout.Checkpoints()
	if _, err := s.learner.Save(ctx, s.store, dir, s.at); err != nil {
		return err
	}
	entries, err := checkpoint.List(ctx, s.store, dir)
	if err != nil {
		return err
	}
	keep := map[int]bool{s.cfg.SFT.Steps: true}
	for _, e := range entries[max(0, len(entries)-s.cfg.Checkpoint.Keep):] {
		keep[e.Step] = true
	}
	for _, p := range planOf(s.run.RunID, s.cfg).Stages {
		keep[s.cfg.SFT.Steps+p.FirstStep+p.Steps-1] = true
	}
	return checkpoint.Prune(ctx, s.store, dir, func(cursor int) bool { return keep[cursor] })
}

// name says which update a cursor stands for.
func (s *session) name(cursor int) string {
	if cursor <= s.cfg.SFT.Steps {
		return fmt.Sprintf("SFT update %d", cursor)
	}
	return fmt.Sprintf("step %d", cursor-s.cfg.SFT.Steps)
}

// advance makes the next update of the run.
func (s *session) advance(ctx context.Context) error {
	var err error
	if next := s.at + 1; next <= s.cfg.SFT.Steps {
		s.last, err = s.sftUpdate(ctx, next)
	} else {
		s.last, err = s.rlUpdate(ctx, next-s.cfg.SFT.Steps)
	}
	// A failed update may have changed a part of the state.
	s.known = err == nil
	if err == nil {
		s.at++
	}
	return err
}

// sftUpdate makes supervised update n, from 1, on its part of the shuffled data.
func (s *session) sftUpdate(ctx context.Context, n int) (rl.TrainMetrics, error) {
	if err := s.readRows(ctx); err != nil {
		return rl.TrainMetrics{}, err
	}
	batch := make([]rl.Sample, 0, s.cfg.SFT.BatchSize)
	for i := (n - 1) * s.cfg.SFT.BatchSize; i < n*s.cfg.SFT.BatchSize; i++ {
		batch = append(batch, s.rows[s.orderOf(i / len(s.rows))[i%len(s.rows)]])
	}
	return s.learner.SFTStep(ctx, batch, s.cfg.SFT.Optimizer, trainer.Position{Step: n, Total: s.cfg.SFT.Steps})
}

// orderOf is the order of the rows in a pass over the data.
func (s *session) orderOf(epoch int) []int {
	if s.order == nil || s.epoch != epoch {
		s.epoch, s.order = epoch, rl.Rand(rl.Seed(s.cfg.Seed, "sft-order", uint64(epoch))).Perm(len(s.rows))
	}
	return s.order
}

func (s *session) readRows(ctx context.Context) error {
	if s.rows != nil {
		return nil
	}
	data, err := blob.ReadKey(ctx, s.store, s.layout.Dialogues())
	if err != nil {
		return err
	}
	dialogues, err := dataset.ReadDialogues(bytes.NewReader(data), s.store.Locate(s.layout.Dialogues()))
	if err != nil {
		return err
	}
	s.rows, err = renderRows(s.format, dialogues, s.cfg.Model.MaxContext)
	return err
}

// renderRows turns dialogues into rows. One that does not fit is an error: it
// would teach to stop in the middle.
func renderRows(format *chat.Format, dialogues []chat.Dialogue, maxContext int) ([]rl.Sample, error) {
	rows := make([]rl.Sample, 0, len(dialogues))
	for i, d := range dialogues {
		t, err := format.Render(d)
		if err != nil {
			return nil, fmt.Errorf("dialogue %d: %w", i+1, err)
		}
		if n := len(t.Tokens()); n > maxContext {
			return nil, config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf("is %d, but dialogue %d has %d tokens", maxContext, i+1, n)}}
		}
		rows = append(rows, rl.Sample{
			ProblemID: "sft", Rollout: i, Tokens: t.Tokens(), LossMask: t.LossMask(), RolloutLogprobs: t.Logprobs(),
		})
	}
	return rows, nil
}

// rlUpdate applies the stored batch of an RL step.
func (s *session) rlUpdate(ctx context.Context, step int) (rl.TrainMetrics, error) {
	position := s.schedule(step)
	if position.Step == 1 {
		if err := s.learner.ResetOptimizer(); err != nil {
			return rl.TrainMetrics{}, err
		}
	}
	built, ok, err := artifact.Lookup[BuildBatchResult](ctx, s.store, s.layout.BatchStats(step))
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	if !ok {
		return rl.TrainMetrics{}, fmt.Errorf("no batch of step %d in %s", step, s.store.Locate(s.layout.Step(step)))
	}
	if built.Samples == 0 {
		return rl.TrainMetrics{}, nil // no group of the step had a signal
	}
	data, err := blob.ReadRef(ctx, s.store, built.Batch)
	if err != nil {
		return rl.TrainMetrics{}, err
	}
	var batch rl.Batch
	if err := json.Unmarshal(data, &batch); err != nil {
		return rl.TrainMetrics{}, fmt.Errorf("%s: %w", s.store.Locate(s.layout.Batch(step)), err)
	}
	return s.learner.Update(ctx, batch, trainer.UpdateOptions{
		Optimizer: s.cfg.RL.Optimizer, Position: position, NumMinibatches: s.cfg.RL.NumMinibatches,
	})
}

// schedule is the place of a step in its stretch of the learning-rate schedule.
// A stretch begins, with a fresh optimizer, at the first step of all and at the
// first of each stage that asks for it.
func (s *session) schedule(step int) trainer.Position {
	begin, end := 1, 0
	for _, p := range planOf(s.run.RunID, s.cfg).Stages {
		if p.FirstStep > 1 && s.cfg.Stages[p.Index-1].ResetOptimizer {
			if p.FirstStep > step {
				break
			}
			begin = p.FirstStep
		}
		end = p.FirstStep + p.Steps - 1
	}
	return trainer.Position{Step: step - begin + 1, Total: end - begin + 1}
}
