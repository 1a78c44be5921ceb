package learner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"temper/internal/blob"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/chain"
	"temper/internal/run/retrain"
	"temper/trainer/checkpoint"
)

// retention deletes what a run does not keep, after a save: checkpoints, then
// policies, then trajectories. It uses the configuration of when the save began.
type retention struct {
	*run.Loaded
	store blob.Store
	lease *checkpoint.Lease
}

func (k retention) timetable() timetable { return timetable{k.Config} }

// prune deletes all three. With checkpoint.ErrUncollected something stays, since it is not
// known whether anybody needs it: shards, for `temper store gc`, or policies.
func (k retention) prune(ctx context.Context, cursor int) error {
	failpoint.Hit("checkpoint/before-prune")
	left := k.pruneCheckpoints(ctx, cursor)
	if left != nil && !errors.Is(left, checkpoint.ErrUncollected) {
		return left
	}
	failpoint.Hit("policy/before-prune")
	if err := k.prunePolicies(ctx, cursor); errors.Is(err, checkpoint.ErrUncollected) {
		left = err
	} else if err != nil {
		return err
	}
	if err := k.pruneTrajectories(ctx, cursor); err != nil {
		return err
	}
	return left
}

// reasonsToKeep returns why checkpoints stay, by cursor, under the settings at the cursor
// at.
func (k retention) reasonsToKeep(ctx context.Context, cursors []int, at int) (map[int]string, error) {
	return run.Retained(ctx, k.store, k.Ref.RunID, k.Config.At(max(0, at-k.Config.SFT.Steps)), cursors)
}

// savedCursors lists the cursors that have a checkpoint.
func (k retention) savedCursors(ctx context.Context) ([]int, error) {
	entries, err := checkpoint.List(ctx, k.store, k.Layout.Checkpoints())
	if err != nil {
		return nil, err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	return cursors, nil
}

func (k retention) pruneCheckpoints(ctx context.Context, cursor int) error {
	cursors, err := k.savedCursors(ctx)
	if err != nil {
		return err
	}
	kept, err := k.reasonsToKeep(ctx, cursors, cursor)
	if err != nil {
		return err
	}
	var gone []string
	for _, saved := range cursors[:max(0, len(cursors)-1)] { // the newest stays in any case
		if kept[saved] == "" {
			gone = append(gone, checkpoint.Folder(k.Layout.Checkpoints(), saved)+"/")
		}
	}
	if err := k.note(ctx, cursor, gone); err != nil {
		return err
	}
	return checkpoint.Prune(ctx, k.store, artifact.Root, k.Layout.Checkpoints(), func(cursor int) bool { return kept[cursor] != "" })
}

// prunePolicies decides about the policies before the cursor alone, whose steps are
// over. Which of them stay is a function of the run at that cursor, however late the
// trainer gets to it. No save deletes what a later one would keep.
func (k retention) prunePolicies(ctx context.Context, cursor int) error {
	at := int64(cursor - k.Config.SFT.Steps)
	if at < 0 || k.Config.At(int(at)).Checkpoint.KeepPolicies == 0 {
		return nil
	}
	stored, err := artifact.StoredPolicies(ctx, k.store, k.Layout)
	if err != nil {
		return err
	}
	kept, err := k.keptPolicies(ctx, at, stored)
	if err != nil {
		return err
	}
	stored = slices.DeleteFunc(stored, func(p artifact.StoredPolicy) bool { return p.Version >= at || kept[p.Version] && p.Whole })
	var gone []string
	for _, p := range stored {
		gone = append(gone, k.Layout.Policy(p.Version).Ref(), k.Layout.Policy(p.Version).Dir()+"/")
	}
	if err := k.note(ctx, cursor, gone); err != nil {
		return err
	}
	return k.deletePolicies(ctx, stored)
}

// deletePolicies deletes policies, and then the shards that nothing names any more. A
// process that dies in between leaves those to `temper store gc`.
func (k retention) deletePolicies(ctx context.Context, policies []artifact.StoredPolicy) error {
	var shards []blob.Ref
	for _, p := range policies {
		if err := k.lease.Check(ctx); err != nil {
			return err
		}
		named, err := checkpoint.FolderShards(ctx, k.store, k.Layout.Policy(p.Version).Dir())
		if err != nil {
			return err
		}
		shards = append(shards, named...)
		if err := k.deletePolicy(ctx, p); err != nil {
			return fmt.Errorf("delete policy %d: %w", p.Version, err)
		}
	}
	if len(shards) == 0 {
		return nil
	}
	failpoint.Hit("policy/before-release")
	return checkpoint.Release(ctx, k.store, artifact.Root, shards)
}

// keptPolicies are the versions that stay after a save of the policy at.
func (k retention) keptPolicies(ctx context.Context, at int64, stored []artifact.StoredPolicy) (map[int64]bool, error) {
	cfg := k.Config.At(int(at))
	out := map[int64]bool{0: true, int64(cfg.Fork.Step): true}
	for _, p := range run.PlanOf(k.Ref.RunID, cfg).Stages {
		out[int64(p.FirstStep+p.Steps-1)] = true
	}
	newest := 0
	for _, p := range slices.Backward(stored) {
		if p.Whole && p.Version <= at && newest < cfg.Checkpoint.KeepPolicies {
			out[p.Version] = true
			newest++
		}
	}
	if err := k.keepWithCheckpoints(ctx, int(at), out); err != nil {
		return nil, err
	}
	evaluated, err := artifact.EvaluatedPolicies(ctx, k.store, k.Layout)
	if err != nil {
		return nil, err
	}
	good, err := retrain.GoodPolicies(ctx, k.store, k.Ref.RunID)
	if errors.Is(err, blob.ErrCorrupt) { // of a schedule, which may start from any of them
		return nil, fmt.Errorf("%w of the policies: %w", checkpoint.ErrUncollected, err)
	}
	if err != nil {
		return nil, err
	}
	for _, version := range slices.Concat(evaluated, good) {
		out[version] = true
	}
	return out, nil
}

// keepWithCheckpoints adds the policies whose step has a checkpoint that stays,
// or a pin.
func (k retention) keepWithCheckpoints(ctx context.Context, at int, out map[int64]bool) error {
	cursors, err := k.savedCursors(ctx)
	if err != nil {
		return err
	}
	first := k.timetable().cursor(0)
	kept, err := k.reasonsToKeep(ctx, cursors, first+at)
	if err != nil {
		return err
	}
	pins, err := checkpoint.Pins(ctx, k.store, k.Layout.Checkpoints())
	if err != nil {
		return err
	}
	for cursor := range kept {
		out[int64(cursor-first)] = true
	}
	for cursor := range pins {
		out[int64(cursor-first)] = true
	}
	return nil
}

// deletePolicy deletes a policy: first the key that says that it exists, then its
// manifest, then its files. No reader takes a half-deleted policy for a policy, and
// the next prune deletes the rest.
func (k retention) deletePolicy(ctx context.Context, p artifact.StoredPolicy) error {
	if err := k.store.Delete(ctx, k.Layout.Policy(p.Version).Ref()); err != nil {
		return err
	}
	failpoint.Hit("policy/between-deletes")
	if err := checkpoint.DropPolicy(ctx, k.store, k.Layout.Policy(p.Version).Dir()); err != nil {
		return err
	}
	for _, key := range p.Files {
		if err := k.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// pruneTrajectories deletes the trajectories of old steps. A step's trajectories
// are read until its batch is stored, and never after: replays, forks and repeated
// stages read batches, checkpoints and problems, all of which stay. So the
// trajectories of steps that the saved checkpoint contains may go. Which ones do is a
// function of the cursor: after a death between two deletes the next save deletes the
// rest.
func (k retention) pruneTrajectories(ctx context.Context, cursor int) error {
	at := cursor - k.Config.SFT.Steps
	if at < 1 {
		return nil
	}
	keep := k.Config.At(at).Checkpoint.KeepTrajectories
	if keep == 0 || at <= keep {
		return nil
	}
	steps, err := k.stepsWithTrajectories(ctx, at-keep)
	if err != nil {
		return err
	}
	gone := make([]string, len(steps))
	for i, step := range steps {
		gone[i] = k.Layout.Step(step).Groups() + "/"
	}
	if err := k.note(ctx, cursor, gone); err != nil {
		return err
	}
	for _, step := range steps {
		if err := k.lease.Check(ctx); err != nil {
			return err
		}
		if err := k.deleteGroups(ctx, step); err != nil {
			return fmt.Errorf("delete trajectories of step %d: %w", step, err)
		}
	}
	return nil
}

// stepsWithTrajectories lists the steps up to last whose trajectories are to be
// deleted, the oldest first. Since the oldest go first, no step before one without
// trajectories has any: what an earlier save has deleted is not looked at again.
func (k retention) stepsWithTrajectories(ctx context.Context, last int) ([]int, error) {
	_, folders, err := k.store.ListFolder(ctx, k.Layout.Steps())
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range slices.Backward(folders) {
		step, err := strconv.Atoi(name)
		if err != nil || step > last {
			continue
		}
		groups, _, err := k.store.ListFolder(ctx, k.Layout.Step(step).Groups())
		if err != nil {
			return nil, err
		}
		if len(groups) == 0 {
			break
		}
		out = append(out, step)
	}
	slices.Reverse(out)
	return out, nil
}

// deleteGroups deletes the trajectories of a step, after the outputs of their calls and
// what the trainer said of their tokens.
func (k retention) deleteGroups(ctx context.Context, step int) error {
	outputs, _, err := k.store.ListFolder(ctx, k.Layout.Step(step).OutputsFolder())
	if err != nil {
		return err
	}
	tokens, _, err := k.store.ListFolder(ctx, k.Layout.Step(step).TokensFolder())
	if err != nil {
		return err
	}
	groups, _, err := k.store.ListFolder(ctx, k.Layout.Step(step).Groups())
	if err != nil {
		return err
	}
	for _, group := range slices.Concat(outputs, tokens, groups) {
		if err := k.store.Delete(ctx, group.Key); err != nil {
			return err
		}
	}
	return nil
}

// note records what is about to be deleted, so that a reader does not take it for lost.
func (k retention) note(ctx context.Context, cursor int, gone []string) error {
	if err := k.lease.Check(ctx); err != nil {
		return err
	}
	return chain.Retire(ctx, k.store, k.Layout, chain.Retired{Cursor: cursor, Keys: gone})
}
