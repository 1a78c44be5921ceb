package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// writeStage writes the training and the held-out problems of a stage.
func (p *preparation) writeStage(ctx context.Context, index int, s config.Stage) error {
	train, heldOut, err := p.stageProblems(ctx, dataKey(index), s)
	if err != nil {
		return err
	}
	if err := p.keep(run.PutLines(ctx, p.store, p.layout.Stage(index).Train(), train)); err != nil {
		return err
	}
	if err := (evaluated{p}).writeRates(ctx, index, train); err != nil {
		return err
	}
	return p.keep(run.PutLines(ctx, p.store, p.layout.Stage(index).HeldOut(), heldOut))
}

// dataKey is the key of the problems of a stage, counted from 1.
func dataKey(index int) string { return fmt.Sprintf("stages[%d].data", index-1) }

// stageProblems returns the training and the held-out problems of a stage, counted
// and checked. Prompts are measured once the format is known.
func (p *preparation) stageProblems(ctx context.Context, path string, s config.Stage) (train, heldOut []rl.Problem, err error) {
	set, gathered := p.sets[path]
	if !gathered { // a fork makes some of its sets
		set.train, set.heldOut, set.err = p.readProblems(ctx, path, s.Data)
		p.sieve.holdOut(path, set.heldOut)
	}
	if set.err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, set.err)
	}
	train, heldOut = set.train, set.heldOut
	if train, err = p.sieve.dropHeldOut(path, train); err != nil {
		return nil, nil, err
	}
	if p.format != nil {
		var a, b int
		if train, a, err = p.sieve.dropLongPrompts(path, train, p.format, s); err == nil {
			heldOut, b, err = p.sieve.dropLongPrompts(path+" (held out)", heldOut, p.format, s)
		}
		if err != nil {
			return nil, nil, err
		}
		p.out.TokenBudget = max(p.out.TokenBudget, a, b)
	}
	if len(train) < p.cfg.RL.ProblemsPerStep {
		return nil, nil, fault.Newf(fault.Dataset, "%s: %d training problems, want at least rl.problems_per_step (%d)%s",
			path, len(train), p.cfg.RL.ProblemsPerStep, p.sieve.text(path))
	}
	if err := checkStepIDs(train, p.cfg.RL.ProblemsPerStep*(1+p.cfg.RL.Refill.Rounds)); err != nil {
		return nil, nil, fault.Newf(fault.Dataset, "%s: %w", path, err)
	}
	if err := (evaluated{p}).checkEvaluated(train); err != nil {
		return nil, nil, fault.Newf(fault.Dataset, "%s: %w", path, err)
	}
	for _, set := range [][]rl.Problem{train, heldOut} {
		if err := checkProblems(p.layout, set); err != nil {
			return nil, nil, fault.Newf(fault.Dataset, "%s: %w", path, err)
		}
	}
	p.out.Problems += len(train)
	p.out.NumHeldOut += len(heldOut)
	return train, heldOut, nil
}

// stageSet are the problems of a stage as its source has them, or why there are none.
type stageSet struct {
	train, heldOut []rl.Problem
	err            error
}

// gather reads the problems of all stages, so that what one of them holds out is known to
// all of them.
func (p *preparation) gather(ctx context.Context) {
	p.sets = map[string]stageSet{}
	for i, s := range p.cfg.Stages {
		var set stageSet
		key := dataKey(i + 1)
		set.train, set.heldOut, set.err = p.readProblems(ctx, key, s.Data)
		p.sieve.holdOut(key, set.heldOut)
		p.sets[key] = set
	}
}

// readProblems generates both splits, or reads a file and holds out its last
// eval.num_problems problems, half of the file at most; problems with the prompt of an
// earlier one do not count. path is the key of the data. Errors: Dataset.
func (p *preparation) readProblems(ctx context.Context, path string, src config.Source) (train, heldOut []rl.Problem, err error) {
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
	if all, err = p.sieve.dropDuplicates(path, all); err != nil {
		return nil, nil, err
	}
	cut := len(all) - min(p.cfg.Eval.NumProblems, len(all)/2)
	return all[:cut], all[cut:], nil
}

// fromStore reads a file of data that lies in the store. Errors: Dataset where the
// data is to blame; those of a failing store stay as they are.
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

const (
	// maxProblemID leaves room for an ending in a file name of 255 bytes.
	maxProblemID = 200
	// maxReported bounds the problems or dialogues that one error lists.
	maxReported = 20
)

// checkProblems finds problems that could be read but never sampled.
func checkProblems(layout artifact.Layout, problems []rl.Problem) error {
	var bad []error
	for _, problem := range problems {
		_, err := env.ByName(problem.Env)
		if err == nil {
			err = blob.CheckKey(layout.Step(1).Group(problem.ID))
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

// checkRoom refuses prompts that leave no room for a response in a context of so many
// tokens.
func (p evaluated) checkRoom(problems []rl.Problem, s config.Stage, room int) error {
	for _, problem := range problems {
		need, err := lengthOf(p.format, problem, s)
		if err != nil {
			return err
		}
		p.out.TokenBudget = max(p.out.TokenBudget, need)
		if need > room {
			return config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf(
				"is %d, but the prompt of problem %s with max_response_tokens needs %d", room, problem.ID, need)}}
		}
	}
	return nil
}

// checkStepIDs finds ids that are too long for a step to name all of its problems.
func checkStepIDs(problems []rl.Problem, perStep int) error {
	var sizes []int
	for _, p := range problems {
		sizes = append(sizes, len(p.ID)+len(`"",`))
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	total := 0
	for _, n := range sizes[:min(perStep, len(sizes))] {
		total += n
	}
	if total > run.MaxStepIDBytes {
		return fmt.Errorf("the ids of a step's %d problems take %s, want at most %s: shorten the ids or lower rl.problems_per_step",
			perStep, config.Bytes(total), config.Bytes(run.MaxStepIDBytes))
	}
	return nil
}
