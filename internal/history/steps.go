package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"temper/internal/blob"
	"temper/internal/chat/tokenizer"
	"temper/internal/rl"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
)

// Rollouts reads what was sampled for a run, step by step, and what became of it.
type Rollouts struct{ run *Run }

// RolloutsOf reads those of a run.
func RolloutsOf(r *Run) Rollouts { return Rollouts{r} }

// Record is the record of one step; ok is false while there is none.
func (o Rollouts) Record(ctx context.Context, step int) (rec run.StepRecord, ok bool, err error) {
	return artifact.Lookup[run.StepRecord](ctx, o.run.store, o.run.layout.Step(step).Log())
}

// Watch is what the rules of the run's watch know after a step; ok is false where it is
// not recorded.
func (o Rollouts) Watch(ctx context.Context, step int) (s rules.WatchState, ok bool, err error) {
	return artifact.Lookup[rules.WatchState](ctx, o.run.store, o.run.layout.Step(step).Watch())
}

// Batch is what became of the groups of a step; ok is false where it is not recorded,
// as in runs of programs that stored the samples themselves.
func (o Rollouts) Batch(ctx context.Context, step int) (b run.StoredBatch, ok bool, err error) {
	b, ok, err = artifact.Lookup[run.StoredBatch](ctx, o.run.store, o.run.layout.Step(step).Batch())
	return b, ok && len(b.Groups) > 0, err
}

// Index has a row for each trajectory of a step, ordered by problem and rollout; ok is
// false where none was recorded. It stays when the trajectories are deleted.
func (o Rollouts) Index(ctx context.Context, step int) (rows []record.Row, ok bool, err error) {
	data, err := blob.ReadKey(ctx, o.run.store, o.run.layout.Step(step).Index())
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if rows, err = record.ReadIndex(data); err != nil {
		return nil, false, fmt.Errorf("%s: %w: %w", o.run.store.Locate(o.run.layout.Step(step).Index()), err, blob.ErrCorrupt)
	}
	return rows, true, o.addEntropies(ctx, step, func(data []byte) error { return record.AddEntropies(rows, data) })
}

// Advantages returns the advantages of the trajectories of a problem that the trainer got
// in a step, by rollout; ok is false where they are not recorded. Those of an estimator
// that whitens are whitened once the step has its batch.
func (o Rollouts) Advantages(ctx context.Context, step int, problemID string) (out map[int]float64, ok bool, err error) {
	data, err := blob.ReadKey(ctx, o.run.store, o.run.layout.Step(step).Samples(problemID))
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	samples, err := rl.ReadSamples(bytes.NewReader(data))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w: %w", o.run.store.Locate(o.run.layout.Step(step).Samples(problemID)), err, blob.ErrCorrupt)
	}
	batch, _, err := o.Batch(ctx, step)
	if err != nil {
		return nil, false, err
	}
	out = make(map[int]float64, len(samples))
	for i := range samples {
		out[samples[i].Rollout] = batch.Whitening.Apply(float64(samples[i].Advantage))
	}
	return out, true, nil
}

// TrainProblems are the problems that a stage, from 1, trains on.
func (o Rollouts) TrainProblems(ctx context.Context, stage int) ([]rl.Problem, error) {
	return run.ReadProblems(ctx, o.run.store, o.run.layout.Stage(o.source(stage)).Train())
}

// ProblemSet is the stored content of those that a stage, from 1, trains on, or with
// heldOut is evaluated on. FindProblem finds one in it.
func (o Rollouts) ProblemSet(ctx context.Context, stage int, heldOut bool) ([]byte, error) {
	key := o.run.layout.Stage(o.source(stage)).Train()
	if heldOut {
		key = o.run.layout.Stage(o.source(stage)).HeldOut()
	}
	return blob.ReadKey(ctx, o.run.store, key)
}

// EvalSetProblems is the stored content of a set of eval.sets.
func (o Rollouts) EvalSetProblems(ctx context.Context, set string) ([]byte, error) {
	return blob.ReadKey(ctx, o.run.store, o.run.layout.Data().EvalSet(set))
}

// source is the stage whose problems a stage has.
func (o Rollouts) source(stage int) int {
	i := slices.IndexFunc(o.run.Plan.Stages, func(s run.Stage) bool { return s.Index == stage })
	if i < 0 {
		return stage
	}
	return o.run.Plan.Stages[i].Source()
}

// EvaluationTrajectories returns the trajectories of an evaluation, the greedy ones first,
// with their text. Errors: blob.ErrNotExist.
func (o Rollouts) EvaluationTrajectories(ctx context.Context, e run.Evaluation) ([]rl.Trajectory, error) {
	key := o.run.layout.Eval(e.Stage, e.Label, e.PolicyVersion).Trajectories()
	if e.Set != "" {
		key = o.run.layout.EvalSet(e.Set, e.PolicyVersion).Trajectories()
	}
	out, err := run.ReadTrajectories(ctx, o.run.store, key)
	if err != nil {
		return nil, err
	}
	return out, o.run.texts.add(ctx, o.run.store, o.run.layout, out)
}

// Pieces are the texts of tokens, one for each: an incomplete rune is with the token
// that ends it.
func (o Rollouts) Pieces(ctx context.Context, ids []int32) ([]string, error) {
	tok, err := o.run.texts.tokenizer(ctx, o.run.store, o.run.layout)
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

// of appends the text of a trajectory to dst.
func (x *texts) of(ctx context.Context, store blob.Store, layout artifact.Layout, t *rl.Trajectory, dst []byte) ([]byte, error) {
	if t.Text != "" || t.ResponseTokens() == 0 {
		return append(dst, t.Text...), nil
	}
	tok, err := x.tokenizer(ctx, store, layout)
	if err != nil {
		return dst, err
	}
	return tok.AppendDecode(dst, t.Tokens[t.PromptTokens:]), nil
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
