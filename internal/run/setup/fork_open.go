package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// openFork claims the run id for a fork and takes the checkpoint over, so that
// the parent may delete its own.
func openFork(ctx context.Context, store blob.Store, in run.Input, by Claim) (run.Plan, error) {
	layout := artifact.Layout{RunID: in.RunID}
	mine, again, err := run.ReadOpened(ctx, store, in.RunID)
	if err != nil {
		return run.Plan{}, err
	}
	if again {
		if err := by.takeOwnership(ctx, store, &mine, in); err != nil {
			return run.Plan{}, err
		}
	}
	if again && mine.Fork != nil { // an earlier attempt has chosen the step
		if hasOwnCheckpoint(ctx, store, mine.Plan) {
			return mine.Plan, unpinParent(ctx, store, mine.Plan)
		}
		in.Fork = &run.ForkFrom{RunID: mine.Fork.RunID, Step: mine.Fork.Step, WithoutAmendments: in.Fork.WithoutAmendments}
	}
	f, err := findAndPin(ctx, store, in)
	if err != nil {
		return run.Plan{}, err
	}
	plan := run.PlanOf(in.RunID, f.cfg.Newest())
	plan.CheckpointEvery = f.cfg.At(f.from.Step + 1).Checkpoint.EverySteps
	plan.Priority = in.Priority
	if plan.Fork, err = f.parentPlan(ctx, store); err == nil {
		plan, err = claim(ctx, store, plan, f.cfg, claimant{by, in})
	}
	if err != nil {
		return run.Plan{}, errors.Join(err, f.unpin(ctx, store, in.RunID))
	}
	if err := f.adoptCheckpoints(ctx, store, layout); err != nil {
		return run.Plan{}, err
	}
	return plan, unpinParent(ctx, store, plan)
}

// hasOwnCheckpoint reports whether the fork has its copy of the checkpoint.
func hasOwnCheckpoint(ctx context.Context, store blob.Store, fork run.Plan) bool {
	saved, err := checkpoint.List(ctx, store, artifact.Layout{RunID: fork.RunID}.Checkpoints())
	return err == nil && slices.ContainsFunc(saved, func(e checkpoint.Entry) bool { return e.Step == fork.SFTSteps+fork.Fork.Step })
}

// adoptCheckpoints makes the parent's checkpoint one of the fork's, and the one after SFT
// where the objective refers to it.
func (f *fork) adoptCheckpoints(ctx context.Context, store blob.Store, layout artifact.Layout) error {
	from := artifact.Layout{RunID: f.parent.RunID}.Checkpoints()
	saved, err := checkpoint.List(ctx, store, from)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(saved, func(e checkpoint.Entry) bool { return e.Step == f.cfg.SFT.Steps+f.from.Step }) {
		return fmt.Errorf("fork of run %s, step %d: its checkpoint was deleted meanwhile: %w", f.parent.RunID, f.from.Step, blob.ErrNotExist)
	}
	for _, e := range saved {
		wanted := e.Step == f.cfg.SFT.Steps+f.from.Step || f.cfg.RL.Loss.KL.Coefficient > 0 && e.Step == f.cfg.SFT.Steps
		if !wanted {
			continue
		}
		if _, err := checkpoint.Adopt(ctx, store, e.Ref, layout.Checkpoints()); err != nil {
			return fmt.Errorf("fork of run %s, step %d: %w", f.parent.RunID, f.from.Step, err)
		}
	}
	return nil
}

// parentPlan is what the workflow needs to know of the parent.
func (f *fork) parentPlan(ctx context.Context, store blob.Store) (*run.ForkPlan, error) {
	layout := artifact.Layout{RunID: f.parent.RunID}
	out := &run.ForkPlan{RunID: f.from.RunID, Step: f.from.Step, Skips: f.skips}
	for i, s := range f.parent.Stages {
		made := 0
		if f.parent.Fork != nil && i < len(f.parent.Fork.Made) {
			made = f.parent.Fork.Made[i]
		}
		for step := s.FirstStep; step < s.FirstStep+s.Steps && step <= f.from.Step; step++ {
			_, err := store.Stat(ctx, layout.Step(step).BatchStats())
			if err == nil {
				made++
			} else if !errors.Is(err, blob.ErrNotExist) {
				return nil, err
			}
		}
		out.Made = append(out.Made, made)
		report, err := f.parentReport(ctx, store, i, s)
		if err != nil {
			return nil, err
		}
		out.Reports = append(out.Reports, report)
	}
	return out, nil
}

// parentReport is what the parent measured of a stage, as far as it holds for the fork.
func (f *fork) parentReport(ctx context.Context, store blob.Store, i int, s run.Stage) (run.StageReport, error) {
	out := run.StageReport{Plan: s}
	if f.parent.Fork != nil && i < len(f.parent.Fork.Reports) {
		out = f.parent.Fork.Reports[i]
		out.Plan = s
	}
	if !f.sameProblems(s.Source()) {
		return run.StageReport{Plan: s}, nil
	}
	layout := artifact.Layout{RunID: f.parent.RunID}
	for label, into := range map[string]*run.Evaluation{"before": &out.Before, "after": &out.After} {
		version := int64(0)
		if label == "after" {
			version = f.lastStepOf(s)
		}
		if version > int64(f.from.Step) {
			continue
		}
		found, ok, err := artifact.Lookup[run.Evaluation](ctx, store, layout.Eval(s.Source(), label, version).Result())
		if err != nil {
			return out, err
		}
		if ok {
			*into = found
		}
	}
	if s.FirstStep > f.from.Step {
		return out, nil
	}
	filter, ok, err := artifact.Lookup[run.StoredFilter](ctx, store, layout.Stage(s.Source()).Filter())
	if ok {
		out.Filter = filter.FilterResult
	}
	return out, err
}

// lastStepOf is the last step that the parent made of a stage, or is to make.
func (f *fork) lastStepOf(s run.Stage) int64 {
	for _, skip := range f.skips {
		if skip.Stage == s.Index {
			return int64(s.FirstStep + skip.After - 1)
		}
	}
	return int64(s.FirstStep + s.Steps - 1)
}

// pinReason is the reason of the pin on a checkpoint that forks will begin with.
func pinReason(runIDs []string) string {
	var out []string
	for _, id := range runIDs {
		out = append(out, "run "+id+pinEnding)
	}
	return strings.Join(out, pinBetween)
}

const (
	pinEnding  = " begins with it"
	pinBetween = "; "
)

// pinnedFor returns the forks for which a checkpoint is pinned; none if a user has pinned
// it.
func pinnedFor(reason string) []string {
	var out []string
	for part := range strings.SplitSeq(reason, pinBetween) {
		id, isFork := strings.CutSuffix(strings.TrimPrefix(part, "run "), pinEnding)
		if !isFork {
			return nil
		}
		out = append(out, id)
	}
	return out
}

// pin keeps the checkpoint for the fork, unless a user has pinned it. If another fork has
// pinned it, that fork removes its pin itself.
func (f *fork) pin(ctx context.Context, store blob.Store, runID string) error {
	layout, cursor := artifact.Layout{RunID: f.parent.RunID}, f.parent.SFTSteps+f.from.Step
	pins, err := checkpoint.Pins(ctx, store, layout.Checkpoints())
	if err != nil {
		return err
	}
	before, pinned := pins[cursor]
	forks := pinnedFor(before.Reason)
	if pinned && (len(forks) == 0 || slices.Contains(forks, runID)) {
		return nil
	}
	return checkpoint.Pin(ctx, store, layout.Checkpoints(), cursor, pinReason(append(forks, runID)))
}

// unpin takes back what pin did.
func (f *fork) unpin(ctx context.Context, store blob.Store, runID string) error {
	return removePin(ctx, store, f.parent.RunID, f.parent.SFTSteps+f.from.Step, runID)
}

// unpinParent takes back what pin did for a fork that has its own checkpoint.
func unpinParent(ctx context.Context, store blob.Store, fork run.Plan) error {
	return removePin(ctx, store, fork.Fork.RunID, fork.SFTSteps+fork.Fork.Step, fork.RunID)
}

// removePin removes the pin on a checkpoint of the parent, if the fork made it. That of other
// forks stays.
func removePin(ctx context.Context, store blob.Store, parent string, cursor int, runID string) error {
	dir := artifact.Layout{RunID: parent}.Checkpoints()
	pins, err := checkpoint.Pins(ctx, store, dir)
	forks := pinnedFor(pins[cursor].Reason)
	if err != nil || !slices.Contains(forks, runID) {
		return err
	}
	if forks = slices.DeleteFunc(forks, func(id string) bool { return id == runID }); len(forks) > 0 {
		return checkpoint.Pin(ctx, store, dir, cursor, pinReason(forks))
	}
	return checkpoint.Unpin(ctx, store, dir, cursor)
}

// maxAttempts bounds how often a checkpoint is chosen. One may be deleted between
// the choice and the pin.
const maxAttempts = 5

// findAndPin finds the checkpoint and pins it until the fork has a copy: an open parent
// deletes old ones. If one is deleted before the pin, findAndPin chooses again; it then
// refuses a named step with the steps that are left.
func findAndPin(ctx context.Context, store blob.Store, in run.Input) (f fork, err error) {
	for range maxAttempts {
		if f, err = findFork(ctx, store, in); err != nil {
			return f, err
		}
		if err = f.pin(ctx, store, in.RunID); !errors.Is(err, blob.ErrNotExist) {
			return f, err
		}
	}
	return f, err
}
