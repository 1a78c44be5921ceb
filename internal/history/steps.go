package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/record"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/tokenizer"
	"temper/internal/watch"
)

// Record is the record of one step; ok is false while there is none.
func (r *Run) Record(ctx context.Context, step int) (rec run.StepRecord, ok bool, err error) {
	return artifact.Lookup[run.StepRecord](ctx, r.store, r.layout.StepLog(step))
}

// Watch is what the rules of the run's watch know after a step; ok is false where it is
// not recorded.
func (r *Run) Watch(ctx context.Context, step int) (s watch.State, ok bool, err error) {
	return artifact.Lookup[watch.State](ctx, r.store, r.layout.Watch(step))
}

// Batch is what became of the groups of a step; ok is false where it is not recorded,
// as in runs of programs that stored the samples themselves.
func (r *Run) Batch(ctx context.Context, step int) (b run.StoredBatch, ok bool, err error) {
	b, ok, err = artifact.Lookup[run.StoredBatch](ctx, r.store, r.layout.Batch(step))
	return b, ok && len(b.Groups) > 0, err
}

// Index has a row for each trajectory of a step, ordered by problem and rollout; ok is
// false where none was recorded. It stays when the trajectories are deleted.
func (r *Run) Index(ctx context.Context, step int) (rows []record.Row, ok bool, err error) {
	data, err := blob.ReadKey(ctx, r.store, r.layout.Index(step))
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if rows, err = record.ReadIndex(data); err != nil {
		return nil, false, fmt.Errorf("%s: %w: %w", r.store.Locate(r.layout.Index(step)), err, blob.ErrCorrupt)
	}
	return rows, true, nil
}

// Advantages are those of the trajectories that the trainer got of a problem in a step,
// by rollout; ok is false where they are not recorded.
func (r *Run) Advantages(ctx context.Context, step int, problemID string) (out map[int]float64, ok bool, err error) {
	data, err := blob.ReadKey(ctx, r.store, r.layout.Samples(step, problemID))
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	samples, err := rl.ReadSamples(bytes.NewReader(data))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w: %w", r.store.Locate(r.layout.Samples(step, problemID)), err, blob.ErrCorrupt)
	}
	out = make(map[int]float64, len(samples))
	for i := range samples {
		out[samples[i].Rollout] = float64(samples[i].Advantage)
	}
	return out, true, nil
}

// TrainProblems are the problems that a stage, from 1, trains on.
func (r *Run) TrainProblems(ctx context.Context, stage int) ([]rl.Problem, error) {
	return run.ReadProblems(ctx, r.store, r.layout.TrainProblems(r.source(stage)))
}

// HeldOutProblems are the problems that a stage, from 1, is evaluated on.
func (r *Run) HeldOutProblems(ctx context.Context, stage int) ([]rl.Problem, error) {
	return run.ReadProblems(ctx, r.store, r.layout.HeldOutProblems(r.source(stage)))
}

// source is the stage whose problems a stage has.
func (r *Run) source(stage int) int {
	i := slices.IndexFunc(r.Plan.Stages, func(s run.Stage) bool { return s.Index == stage })
	if i < 0 {
		return stage
	}
	return r.Plan.Stages[i].Source()
}

// Filter is the result of the offline filter of a stage; ok is false where it had none.
func (r *Run) Filter(ctx context.Context, stage int) (f run.StoredFilter, ok bool, err error) {
	return artifact.Lookup[run.StoredFilter](ctx, r.store, r.layout.Filter(stage))
}

// SFT are the records of supervised updates, in order.
func (r *Run) SFT(ctx context.Context) ([]run.SFTRecord, error) {
	infos, err := results(ctx, r.store, r.layout.SFTResults())
	if err != nil {
		return nil, err
	}
	return gather[run.SFTRecord](ctx, r.store, infos)
}

// EvaluationTrajectories are those of an evaluation, the greedy ones first, with their
// text. Errors: blob.ErrNotExist.
func (r *Run) EvaluationTrajectories(ctx context.Context, e run.Evaluation) ([]rl.Trajectory, error) {
	out, err := run.ReadTrajectories(ctx, r.store, r.layout.EvalTrajectories(e.Stage, e.Label, e.PolicyVersion))
	if err != nil {
		return nil, err
	}
	return out, r.texts.add(ctx, r.store, r.layout, out)
}

// Pieces are the texts of tokens, one for each: an incomplete rune is with the token
// that ends it.
func (r *Run) Pieces(ctx context.Context, ids []int32) ([]string, error) {
	tok, err := r.texts.tokenizer(ctx, r.store, r.layout)
	if err != nil {
		return nil, err
	}
	dec := tok.NewDecoder()
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = dec.Push(id)
	}
	if len(out) > 0 {
		out[len(out)-1] += dec.Flush()
	}
	return out, nil
}

// texts decodes what a compact record leaves out. It reads the tokenizer of the run
// once, and only when something asks for it.
type texts struct {
	mu  sync.Mutex
	tok *tokenizer.Tokenizer
}

func (x *texts) tokenizer(ctx context.Context, store blob.Store, layout artifact.Layout) (*tokenizer.Tokenizer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tok != nil {
		return x.tok, nil
	}
	data, err := blob.ReadKey(ctx, store, layout.Tokenizer())
	if err == nil {
		x.tok, err = tokenizer.Parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer of run %s: %w", layout.RunID, err)
	}
	return x.tok, nil
}

func (x *texts) add(ctx context.Context, store blob.Store, layout artifact.Layout, ts []rl.Trajectory) error {
	for i := range ts {
		t := &ts[i]
		if t.Text != "" || t.ResponseTokens() == 0 {
			continue
		}
		tok, err := x.tokenizer(ctx, store, layout)
		if err != nil {
			return err
		}
		t.Text = tok.Decode(t.Tokens[t.PromptTokens:])
	}
	return nil
}
