package activities

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/rl"
)

// PrepareData makes or imports all data of a run: dialogues, tokenizer, the
// training and held-out problems of each stage. Errors: Dataset, InvalidConfig.
func (c *Control) PrepareData(ctx context.Context, in PrepareDataInput) (PrepareDataResult, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if done, ok, err := artifact.Lookup[PrepareDataResult](ctx, c.Store, layout.DataReady()); ok || err != nil {
		return done, toTemporal(err)
	}
	started := time.Now()
	cfg, err := readConfig(ctx, c.Store, in.Run)
	if err != nil {
		return PrepareDataResult{}, toTemporal(err)
	}
	p := preparation{ctx: ctx, store: c.Store, layout: layout, cfg: cfg}
	if err := p.run(); err != nil {
		return PrepareDataResult{}, toTemporal(err)
	}
	p.out.DurationMS = int(time.Since(started).Milliseconds())
	out, err := artifact.PutOnce(ctx, c.Store, layout.DataReady(), p.out)
	return out, toTemporal(err)
}

type preparation struct {
	ctx    context.Context
	store  blob.Store
	layout artifact.Layout
	cfg    config.Run
	format *chat.Format
	out    PrepareDataResult
}

func (p *preparation) run() error {
	if err := p.dialogues(); err != nil {
		return err
	}
	for i, s := range p.cfg.Stages {
		if err := p.stage(i+1, s); err != nil {
			return err
		}
	}
	return nil
}

// dialogues makes the supervised data and, from it, the tokenizer.
func (p *preparation) dialogues() error {
	ds, err := dataset.Dialogues(p.cfg.SFT.Data, p.cfg.Seed)
	if err != nil {
		return userError(ErrTypeDataset, fmt.Errorf("sft.data: %w", err))
	}
	tok, err := chat.TrainTokenizer(chatConfig(p.cfg), ds, p.cfg.Tokenizer.NumMerges)
	if err != nil {
		return err
	}
	if p.format, err = chat.New(tok, chatConfig(p.cfg)); err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := dataset.Write(&buf, ds); err != nil {
		return err
	}
	if _, err := blob.PutBytes(p.ctx, p.store, p.layout.Dialogues(), buf.Bytes(), blob.Always); err != nil {
		return err
	}
	data, err := tok.Marshal()
	if err != nil {
		return err
	}
	p.out.Dialogues, p.out.VocabSize = len(ds), tok.VocabSize()
	_, err = blob.PutBytes(p.ctx, p.store, p.layout.Tokenizer(), data, blob.Always)
	return err
}

// stage writes the training and the held-out problems of a stage.
func (p *preparation) stage(index int, s config.Stage) error {
	train, heldOut, err := p.problems(s.Data)
	if err != nil {
		return userError(ErrTypeDataset, fmt.Errorf("stages[%d].data: %w", index-1, err))
	}
	if len(train) < p.cfg.RL.ProblemsPerStep {
		return userError(ErrTypeDataset, fmt.Errorf("stages[%d].data: %d training problems, want at least rl.problems_per_step (%d)",
			index-1, len(train), p.cfg.RL.ProblemsPerStep))
	}
	for key, set := range map[string][]rl.Problem{
		p.layout.TrainProblems(index): train, p.layout.HeldOutProblems(index): heldOut,
	} {
		if err := p.checkLengths(set, s); err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := dataset.Write(&buf, set); err != nil {
			return err
		}
		if _, err := blob.PutBytes(p.ctx, p.store, key, buf.Bytes(), blob.Always); err != nil {
			return err
		}
	}
	p.out.Problems += len(train)
	p.out.NumHeldOut += len(heldOut)
	return nil
}

// problems generates both splits, or reads a file and holds out its last
// eval.num_problems problems, half of the file at most.
func (p *preparation) problems(src config.Source) (train, heldOut []rl.Problem, err error) {
	train, err = dataset.Problems(src, p.cfg.Seed, env.Train)
	if err != nil {
		return nil, nil, err
	}
	if src.Path != "" {
		cut := len(train) - min(p.cfg.Eval.NumProblems, len(train)/2)
		return train[:cut], train[cut:], nil
	}
	src.Num = p.cfg.Eval.NumProblems
	heldOut, err = dataset.Problems(src, p.cfg.Seed, env.HeldOut)
	return train, heldOut, err
}

// checkLengths finds prompts that leave no room for the stage's response.
func (p *preparation) checkLengths(problems []rl.Problem, s config.Stage) error {
	for _, problem := range problems {
		need := p.format.Begin(problem.Prompt).PromptTokens() + s.MaxResponseTokens
		p.out.TokenBudget = max(p.out.TokenBudget, need)
		if need > p.cfg.Model.MaxContext {
			return config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf(
				"is %d, but the prompt of problem %s with max_response_tokens needs %d", p.cfg.Model.MaxContext, problem.ID, need)}}
		}
	}
	return nil
}
