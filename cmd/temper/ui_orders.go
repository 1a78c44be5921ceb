package main

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/history"
	"temper/internal/run"
	"temper/trainer/checkpoint"
	"temper/ui"
	"temper/workflows"
)

// order carries out what is no command to a workflow: another run, or a checkpoint that
// stays. It is what temper run fork, pin and unpin do.
func (s *steerer) order(ctx context.Context, runID, command string, arg workflows.Command) (string, error) {
	if command == ui.OrderFork {
		return s.fork(ctx, runID, arg)
	}
	step, err := parseStep(string(arg.From))
	if err != nil {
		return "", err
	}
	r, err := history.Open(ctx, s.store, runID)
	if err != nil {
		return "", err
	}
	cursor := r.Plan.SFTSteps + step
	if command == ui.OrderPin {
		err = checkpoint.Pin(ctx, s.store, r.CheckpointFolder(), cursor, fmt.Sprintf("%s (%s)", arg.Reason, arg.By))
	} else {
		err = checkpoint.Unpin(ctx, s.store, r.CheckpointFolder(), cursor)
	}
	if errors.Is(err, blob.ErrNotExist) {
		return "", cli.Usagef("run %s has no complete checkpoint of step %d", runID, step)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the checkpoint of step %d is %sned", step, command), nil
}

// fork starts a run from a checkpoint of another.
func (s *steerer) fork(ctx context.Context, parent string, arg workflows.Command) (string, error) {
	f := forking{parent: parent, runID: arg.RunID, withoutAmendments: arg.WithoutAmendments}
	stepped := false
	switch arg.From {
	case run.FromBest:
		f.best = true
	case run.FromLast, "":
		f.last = true
	default:
		step, err := parseStep(string(arg.From))
		if err != nil {
			return "", err
		}
		f.step, stepped = step, true
	}
	if err := f.check(stepped); err != nil {
		return "", err
	}
	in, err := f.input()
	if err != nil {
		return "", err
	}
	in.Set = arg.Set
	begin, err := f.resolve(ctx, s.store, &in)
	if err != nil {
		return "", err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	if err := start(ctx, c, in); err != nil {
		return "", err
	}
	return fmt.Sprintf("run %s begins behind step %d of %s", in.RunID, begin.Step, parent), nil
}
