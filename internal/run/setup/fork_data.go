package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// prepareFork copies the parent's start, tokenizer and what of its data still
// holds: the fork does not need the parent's folder from here on.
func (p *preparation) prepareFork(ctx context.Context, ref run.Ref) error {
	parent, ok, err := run.StoredPlan(ctx, p.store, p.cfg.Fork.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.NotFound, "run %s, which run %s is a fork of, is gone", p.cfg.Fork.RunID, ref.RunID)
	}
	if err != nil {
		return err
	}
	from := run.Ref{RunID: parent.RunID, Config: parent.Config}
	f := fork{parent: parent, cfg: p.cfg, from: p.cfg.Fork}
	if f.parentCfg, err = run.ReadConfig(ctx, p.store, from); err != nil {
		return err
	}
	theirs := artifact.Layout{RunID: parent.RunID}
	ready, ok, err := artifact.Lookup[run.Prepared](ctx, p.store, theirs.Data().Ready())
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("data of run %s: %w", parent.RunID, blob.ErrNotExist))
	}
	if err := p.copyKey(ctx, theirs.Tokenizer(), p.layout.Tokenizer()); err != nil {
		return err
	}
	if p.cfg.Rollout.ChatTemplate != "" {
		if err := p.copyKey(ctx, run.TemplateKey(theirs), run.TemplateKey(p.layout)); err != nil {
			return err
		}
	}
	rc, err := run.Load(ctx, p.store, from)
	if err != nil {
		return err
	}
	if err := p.inheritCode(ctx, f.parentCfg, rc.Code); err != nil {
		return err
	}
	p.format, p.out.VocabSize = rc.Format, ready.VocabSize
	if p.out.Start, err = copyStart(ctx, p.store, ready.Start, p.layout); err != nil {
		return err
	}
	return p.inheritStages(ctx, &f)
}

func (p *preparation) inheritStages(ctx context.Context, f *fork) error {
	if err := (evaluated{p}).inheritSets(ctx, f); err != nil {
		return err
	}
	theirs := artifact.Layout{RunID: f.parent.RunID}
	for i, s := range p.cfg.Stages {
		index := i + 1
		if !f.sameProblems(index) {
			if err := p.writeStage(ctx, index, s); err != nil {
				return err
			}
			continue
		}
		keys := [][2]string{
			{theirs.Stage(index).Train(), p.layout.Stage(index).Train()},
			{theirs.Stage(index).HeldOut(), p.layout.Stage(index).HeldOut()},
		}
		if f.parent.Stages[i].FirstStep <= f.from.Step {
			keys = append(keys, [2]string{theirs.Stage(index).Filter(), p.layout.Stage(index).Filter()})
		}
		for _, k := range keys {
			if err := p.copyKey(ctx, k[0], k[1]); err != nil && (k[0] != theirs.Stage(index).Filter() || !errors.Is(err, blob.ErrNotExist)) {
				return err
			}
		}
		if err := (evaluated{p}).inheritRates(ctx, f, index); err != nil {
			return err
		}
	}
	return nil
}

// sameProblems reports whether the fork has the parent's problems of a stage, from 1.
func (f *fork) sameProblems(index int) bool {
	if index > len(f.cfg.Stages) || index > len(f.parentCfg.Stages) {
		return false
	}
	a, b := f.cfg.Stages[index-1].Data, f.parentCfg.Stages[index-1].Data
	return f.cfg.Seed == f.parentCfg.Seed && f.cfg.Eval.NumProblems == f.parentCfg.Eval.NumProblems &&
		a.Path == b.Path && a.Env == b.Env && a.Num == b.Num && slices.Equal(a.Levels, b.Levels)
}

func (p *preparation) copyKey(ctx context.Context, from, to string) error {
	data, err := blob.ReadKey(ctx, p.store, from)
	if err != nil {
		return err
	}
	return p.keep(blob.PutBytes(ctx, p.store, to, data, blob.Always))
}
