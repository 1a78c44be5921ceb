package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// evaluated is what a preparation makes of evaluation sets and of pass rates.
type evaluated struct{ *preparation }

// setKey is the key of the problems of a set of eval.sets, by index from 0.
func setKey(i int) string { return fmt.Sprintf("eval.sets[%d].path", i) }

// readSet reads and checks the problems of a set, and notes their prompts, so that no
// stage trains on them.
func (p evaluated) readSet(ctx context.Context, i int) ([]rl.Problem, error) {
	set := p.cfg.Eval.Sets[i]
	var problems []rl.Problem
	var err error
	if key, stored := config.StoreKey(set.Path); stored {
		problems, err = fromStore(ctx, p.store, key, dataset.ReadProblems)
	} else {
		problems, err = dataset.Problems(config.Source{Path: set.Path}, p.cfg.Seed, env.HeldOut)
		err = asDataset(err)
	}
	if err == nil && len(problems) == 0 {
		err = asDataset(errors.New("is empty, want at least one problem"))
	}
	if err == nil {
		err = asDataset(checkProblems(p.layout, problems))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setKey(i), err)
	}
	if p.format != nil {
		limits := config.Stage{MaxResponseTokens: set.MaxResponseTokens}
		if err := p.checkRoom(problems, limits, p.cfg.EngineContext()); err != nil {
			return nil, err
		}
	}
	if p.prompts == nil {
		p.prompts = map[dataset.Key]string{}
	}
	for _, problem := range problems {
		p.prompts[askedKey(problem)] = fmt.Sprintf("problem %s of eval.sets[%d] (%s)", problem.ID, i, set.Name)
	}
	p.out.NumHeldOut += len(problems)
	return problems, nil
}

// askedKey is what makes two problems the same for the check below: what is asked, by the
// normal form of prompts, in the same surroundings.
func askedKey(p rl.Problem) dataset.Key { return dataset.KeyOf(p.Prompt, p.Fixture) }

// checkEvaluated finds training problems that a set of eval.sets has too.
func (p evaluated) checkEvaluated(train []rl.Problem) error {
	if len(p.prompts) == 0 {
		return nil
	}
	var bad []error
	more := 0
	for _, problem := range train {
		there, ok := p.prompts[askedKey(problem)]
		switch {
		case !ok:
		case len(bad) == maxReported:
			more++
		default:
			bad = append(bad, fmt.Errorf("problem %s is %s: nobody may train on what is evaluated", problem.ID, there))
		}
	}
	if more > 0 {
		bad = append(bad, fmt.Errorf("and so are %d more", more))
	}
	return errors.Join(bad...)
}

// writeSets writes the problems of all sets of eval.sets.
func (p evaluated) writeSets(ctx context.Context) error {
	for i, set := range p.cfg.Eval.Sets {
		p.progress("evaluation set " + set.Name)
		problems, err := p.readSet(ctx, i)
		if err != nil {
			return err
		}
		if err := p.keep(run.PutLines(ctx, p.store, p.layout.Data().EvalSet(set.Name), problems)); err != nil {
			return err
		}
	}
	return nil
}

// readRates reads the file of pass rates of a stage's filter, which needs one for each
// training problem. It returns nil for a stage without such a file.
func (p evaluated) readRates(index int, train []rl.Problem) ([]run.PassRate, error) {
	name := p.cfg.Stages[index-1].Filter.Rates
	if name == "" {
		return nil, nil
	}
	key := fmt.Sprintf("stages[%d].filter.rates", index-1)
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, asDataset(fmt.Errorf("%s: %w", key, err))
	}
	defer func() { _ = f.Close() }() // only read
	rates, err := run.DecodePassRates(f, name)
	if err != nil {
		return nil, asDataset(fmt.Errorf("%s: %w", key, err))
	}
	out := make([]run.PassRate, 0, len(train))
	missing, first := 0, ""
	for _, problem := range train {
		rate, ok := rates[problem.ID]
		if !ok {
			if missing++; first == "" {
				first = problem.ID
			}
			continue
		}
		out = append(out, run.PassRate{ID: problem.ID, Rate: &rate})
	}
	if missing > 0 {
		return nil, fault.Newf(fault.Dataset, "%s: %s has no pass rate of %d of the stage's %d training problems, the first is %s", key, name, missing, len(train), first)
	}
	return out, nil
}

func (p evaluated) writeRates(ctx context.Context, index int, train []rl.Problem) error {
	rates, err := p.readRates(index, train)
	if err != nil || rates == nil {
		return err
	}
	return p.keep(run.PutLines(ctx, p.store, p.layout.Stage(index).PassRates(), rates))
}

// inheritSets takes the sets of eval.sets over from the parent of a fork where they are
// the same, and reads the others.
func (p evaluated) inheritSets(ctx context.Context, f *fork) error {
	theirs := artifact.Layout{RunID: f.parent.RunID}
	for i, set := range p.cfg.Eval.Sets {
		same := false
		for _, had := range f.parentCfg.Eval.Sets {
			same = same || had.Name == set.Name && had.Path == set.Path
		}
		if same {
			if err := p.copyKey(ctx, theirs.Data().EvalSet(set.Name), p.layout.Data().EvalSet(set.Name)); err != nil {
				return err
			}
			continue
		}
		problems, err := p.readSet(ctx, i)
		if err == nil {
			err = p.keep(run.PutLines(ctx, p.store, p.layout.Data().EvalSet(set.Name), problems))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inheritRates does the same for the pass rates of a stage.
func (p evaluated) inheritRates(ctx context.Context, f *fork, index int) error {
	name := p.cfg.Stages[index-1].Filter.Rates
	if name == "" {
		return nil
	}
	if f.parentCfg.Stages[index-1].Filter.Rates == name {
		theirs := artifact.Layout{RunID: f.parent.RunID}
		return p.copyKey(ctx, theirs.Stage(index).PassRates(), p.layout.Stage(index).PassRates())
	}
	train, err := run.ReadProblems(ctx, p.store, p.layout.Stage(index).Train())
	if err != nil {
		return err
	}
	return p.writeRates(ctx, index, train)
}

// countEpochs gives a configuration with sft.epochs its number of supervised updates.
// Errors: Dataset.
func countEpochs(ctx context.Context, store blob.Store, cfg *config.Run) error {
	if cfg.SFT.Epochs == 0 {
		return nil
	}
	n, err := countDialogues(ctx, store, *cfg)
	if err != nil {
		return err
	}
	cfg.SFT.Steps = int(math.Ceil(cfg.SFT.Epochs * float64(n) / float64(cfg.SFT.BatchSize)))
	return nil
}

// countDialogues counts those of one pass, before any is dropped.
func countDialogues(ctx context.Context, store blob.Store, cfg config.Run) (int, error) {
	if len(cfg.Data.Mix) == 0 {
		if cfg.SFT.Data.Path == "" {
			return cfg.SFT.Data.Num, nil
		}
		n, err := countLines(ctx, store, cfg.SFT.Data.Path)
		return n, underSet("sft.data", err)
	}
	var parts []dataset.Part
	var bad []error
	for i, m := range cfg.Data.Mix {
		n, err := countLines(ctx, store, m.Path)
		bad = append(bad, underSet(fmt.Sprintf("data.mix[%d]", i), err))
		parts = append(parts, mixPart(cfg, m, n))
	}
	if err := errors.Join(bad...); err != nil {
		return 0, err
	}
	n, err := dataset.MixRows(parts, cfg.Data.MixNum)
	if err != nil {
		return 0, fault.Newf(fault.Dataset, "data.mix: %w", err)
	}
	return n, nil
}

// countLines counts the lines of a file of data that are not blank.
func countLines(ctx context.Context, store blob.Store, path string) (int, error) {
	var r io.Reader
	if key, stored := config.StoreKey(path); stored {
		data, err := blob.ReadKey(ctx, store, key)
		if err != nil {
			return 0, err
		}
		r = bytes.NewReader(data)
	} else {
		f, err := os.Open(path) //nolint:gosec // the user names the file
		if err != nil {
			return 0, asDataset(err)
		}
		defer func() { _ = f.Close() }() // only read
		r = f
	}
	n, blank := 0, true
	for in := bufio.NewReaderSize(r, 1<<20); ; {
		part, err := in.ReadSlice('\n')
		blank = blank && len(bytes.TrimSpace(part)) == 0
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // the line continues
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		case !blank:
			n++
		}
		if blank = true; err != nil {
			return n, nil
		}
	}
}
