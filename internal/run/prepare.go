package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/failpoint"
	"temper/internal/fault"
	"temper/internal/rl"
)

// Prepare makes or imports all data of a run: dialogues, tokenizer, the
// training and held-out problems of each stage. It calls progress with what it does,
// when that changes. Errors: Dataset, InvalidConfig.
func Prepare(ctx context.Context, store blob.Store, run Ref, progress func(string)) (Prepared, error) {
	layout := artifact.Layout{RunID: run.RunID}
	if done, ok, err := artifact.Lookup[Prepared](ctx, store, layout.DataReady()); ok || err != nil {
		return done, err
	}
	started := time.Now()
	cfg, err := ReadConfig(ctx, store, run)
	if err != nil {
		return Prepared{}, err
	}
	p := preparation{store: store, layout: layout, cfg: cfg, progress: progress}
	if cfg.Fork.RunID != "" {
		err = p.prepareFork(ctx, run)
	} else {
		err = p.prepareNew(ctx)
	}
	if err != nil {
		return Prepared{}, err
	}
	p.out.DurationMS = int(time.Since(started).Milliseconds())
	failpoint.Hit("prepare/before-ready")
	return artifact.PutOnce(ctx, store, layout.DataReady(), p.out)
}

// preparation writes the data of a run. Nothing counts before the marker that
// Prepare writes last.
type preparation struct {
	store  blob.Store
	layout artifact.Layout
	cfg    config.Run
	// template is nil for the small ChatML.
	template *chat.Template
	format   *chat.Format
	out      Prepared
	progress func(string)
}

// prepareNew makes or imports all data.
func (p *preparation) prepareNew(ctx context.Context) error {
	p.progress("dialogues and tokenizer")
	if err := p.dialogues(ctx); err != nil {
		return err
	}
	for i, s := range p.cfg.Stages {
		p.progress("problems of stage " + s.Name)
		if err := p.stage(ctx, i+1, s); err != nil {
			return err
		}
	}
	return nil
}

// dialogues makes the supervised data and, from it or the checkpoint that the
// run starts from, the tokenizer.
func (p *preparation) dialogues(ctx context.Context) error {
	ds, err := p.readDialogues(ctx)
	if err != nil {
		return fmt.Errorf("sft.data: %w", err)
	}
	p.out.Dialogues = len(ds)
	var data []byte
	if p.cfg.Model.Starts() {
		data, err = p.takeModel(ctx, ds)
	} else {
		data, err = p.learnTokenizer(ds)
	}
	if err != nil {
		return err
	}
	if _, err := blob.PutBytes(ctx, p.store, p.layout.Tokenizer(), data, blob.Always); err != nil {
		return err
	}
	if err := storeTemplate(ctx, p.store, p.layout, p.template); err != nil {
		return err
	}
	return putLines(ctx, p.store, p.layout.Dialogues(), ds)
}

// readDialogues makes or imports the dialogues, none for a run without
// supervised updates.
func (p *preparation) readDialogues(ctx context.Context) ([]chat.Dialogue, error) {
	src := p.cfg.SFT.Data
	if p.cfg.SFT.Steps == 0 {
		return nil, nil
	}
	if key, stored := config.StoreKey(src.Path); stored {
		return fromStore(ctx, p.store, key, dataset.ReadDialogues)
	}
	ds, err := dataset.Dialogues(src, p.cfg.Seed)
	return ds, asDataset(err)
}

// fromStore reads a file of data that lies in the store. A store that fails is
// no matter of the data. Errors: Dataset.
func fromStore[T any](ctx context.Context, store blob.Store, key string, read func(io.Reader, string) ([]T, error)) ([]T, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, asDataset(fmt.Errorf("%s: %w", store.Locate(key), err))
	}
	if err != nil {
		return nil, err
	}
	out, err := read(bytes.NewReader(data), store.Locate(key))
	return out, asDataset(err)
}

// asDataset types the error of data that no retry can mend.
func asDataset(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Dataset, err)
}

// learnTokenizer makes the tokenizer from the dialogues.
func (p *preparation) learnTokenizer(ds []chat.Dialogue) (tokenizerJSON []byte, err error) {
	if p.template, err = findTemplate(p.cfg, "", nil); err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	format := chatConfig(p.cfg, p.template)
	plain, err := chat.NewPlain(format)
	if err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	adaptDialogues(p.cfg, plain, ds)
	tok, err := chat.TrainTokenizer(format, ds, p.cfg.Tokenizer.NumMerges)
	if err != nil {
		return nil, fault.Newf(fault.Dataset, "sft.data: %w", err)
	}
	if p.format, err = chat.New(tok, format); err != nil {
		return nil, err
	}
	p.out.VocabSize = tok.VocabSize()
	return tok.Marshal()
}

// takeModel stores the checkpoint that the run starts from; its tokenizer is the run's.
func (p *preparation) takeModel(ctx context.Context, ds []chat.Dialogue) (tokenizerJSON []byte, err error) {
	s, err := openStart(ctx, p.store, p.cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.template, p.format, p.out.VocabSize = s.template, s.format, s.model.VocabSize
	adaptDialogues(p.cfg, p.format, ds)
	p.out.Start, err = s.store(ctx, p.store, p.layout)
	return s.tokenizerJSON, err
}

// stage writes the training and the held-out problems of a stage.
func (p *preparation) stage(ctx context.Context, index int, s config.Stage) error {
	train, heldOut, err := p.stageProblems(ctx, dataKey(index), s)
	if err != nil {
		return err
	}
	if err := putLines(ctx, p.store, p.layout.TrainProblems(index), train); err != nil {
		return err
	}
	return putLines(ctx, p.store, p.layout.HeldOutProblems(index), heldOut)
}

// dataKey is the key of the problems of a stage, counted from 1.
func dataKey(index int) string { return fmt.Sprintf("stages[%d].data", index-1) }

// stageProblems returns the training and the held-out problems of a stage, counted
// and checked. Prompts are measured once the format is known.
func (p *preparation) stageProblems(ctx context.Context, path string, s config.Stage) (train, heldOut []rl.Problem, err error) {
	train, heldOut, err = p.problems(ctx, s.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(train) < p.cfg.RL.ProblemsPerStep {
		return nil, nil, fault.Newf(fault.Dataset, "%s: %d training problems, want at least rl.problems_per_step (%d)",
			path, len(train), p.cfg.RL.ProblemsPerStep)
	}
	if err := checkStepIDs(train, p.cfg.RL.ProblemsPerStep); err != nil {
		return nil, nil, fault.Newf(fault.Dataset, "%s: %w", path, err)
	}
	for _, set := range [][]rl.Problem{train, heldOut} {
		if err := p.checkProblems(set); err != nil {
			return nil, nil, fault.Newf(fault.Dataset, "%s: %w", path, err)
		}
		if p.format == nil {
			continue
		}
		if err := p.checkLengths(set, s); err != nil {
			return nil, nil, err
		}
	}
	p.out.Problems += len(train)
	p.out.NumHeldOut += len(heldOut)
	return train, heldOut, nil
}

// problems generates both splits, or reads a file and holds out its last
// eval.num_problems problems, half of the file at most. Errors: Dataset.
func (p *preparation) problems(ctx context.Context, src config.Source) (train, heldOut []rl.Problem, err error) {
	if src.Path == "" {
		if train, err = dataset.Problems(src, p.cfg.Seed, env.Train); err == nil {
			src.Num = p.cfg.Eval.NumProblems
			heldOut, err = dataset.Problems(src, p.cfg.Seed, env.HeldOut)
		}
		return train, heldOut, asDataset(err)
	}
	var all []rl.Problem
	if key, stored := config.StoreKey(src.Path); stored {
		all, err = fromStore(ctx, p.store, key, dataset.ReadProblems)
	} else {
		all, err = dataset.Problems(src, p.cfg.Seed, env.Train)
		err = asDataset(err)
	}
	if err == nil && len(all) < 2 {
		err = asDataset(fmt.Errorf("%s: 1 problem, want at least 2: one to train on and one to hold out", src.Path))
	}
	if err != nil {
		return nil, nil, err
	}
	cut := len(all) - min(p.cfg.Eval.NumProblems, len(all)/2)
	return all[:cut], all[cut:], nil
}

const (
	// maxProblemID leaves room for an ending in a file name of 255 bytes.
	maxProblemID = 200
	// maxReported bounds the problems or dialogues that one error lists.
	maxReported = 20
)

// checkProblems finds problems that could be read but never sampled.
func (p *preparation) checkProblems(problems []rl.Problem) error {
	var bad []error
	for _, problem := range problems {
		_, err := env.ByName(problem.Env)
		if err == nil {
			err = blob.CheckKey(p.layout.Group(1, problem.ID))
		}
		if err == nil && len(problem.ID) > maxProblemID {
			err = fmt.Errorf("id of %d bytes, want at most %d", len(problem.ID), maxProblemID)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("problem %.40q: %w", problem.ID, err))
		}
		if len(bad) == maxReported {
			break
		}
	}
	return errors.Join(bad...)
}

// checkLengths finds prompts that leave no room for the stage's response.
func (p *preparation) checkLengths(problems []rl.Problem, s config.Stage) error {
	for _, problem := range problems {
		prompt, err := p.format.Begin(problem.Prompt)
		if err != nil {
			return fault.Newf(fault.Dataset, "problem %s: %w", problem.ID, err)
		}
		need := prompt.PromptTokens() + s.MaxResponseTokens
		p.out.TokenBudget = max(p.out.TokenBudget, need)
		if need > p.cfg.Model.MaxContext {
			return config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf(
				"is %d, but the prompt of problem %s with max_response_tokens needs %d", p.cfg.Model.MaxContext, problem.ID, need)}}
		}
	}
	return nil
}

// putLines stores values as JSON lines.
func putLines[T any](ctx context.Context, store blob.Store, key string, values []T) error {
	var buf bytes.Buffer
	if err := dataset.Write(&buf, values); err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	_, err := blob.PutBytes(ctx, store, key, buf.Bytes(), blob.Always)
	return err
}
