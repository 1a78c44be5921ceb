package activities

import (
	"context"
	"fmt"
	"path"
	"slices"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/failpoint"
	"temper/trainer/checkpoint"
)

// prunePolicies deletes the published policies that nothing keeps, after a save
// of the cursor and the deletion of old checkpoints. It looks at the policies
// before the cursor alone, whose steps are over: which of them stay is a function
// of the run at that cursor, whenever the trainer gets to it, and what a later
// save keeps no earlier one deletes.
func (s *session) prunePolicies(ctx context.Context, cursor int) error {
	at := int64(cursor - s.cfg.SFT.Steps)
	if at < 0 || s.cfg.At(int(at)).Checkpoint.KeepPolicies == 0 {
		return nil
	}
	stored, err := artifact.StoredPolicies(ctx, s.store, s.layout)
	if err != nil {
		return err
	}
	kept, err := s.keptPolicies(ctx, at, stored)
	if err != nil {
		return err
	}
	for _, p := range stored {
		if p.Version >= at || kept[p.Version] && p.Whole {
			continue
		}
		if err := s.lease.Check(ctx); err != nil {
			return err
		}
		if err := deletePolicy(ctx, s.store, s.layout, p); err != nil {
			return fmt.Errorf("delete policy %d: %w", p.Version, err)
		}
	}
	return nil
}

// keptPolicies are the versions that stay after a save of the policy at.
func (s *session) keptPolicies(ctx context.Context, at int64, stored []artifact.StoredPolicy) (map[int64]bool, error) {
	cfg := s.cfg.At(int(at))
	out := map[int64]bool{0: true, int64(cfg.Fork.Step): true}
	for _, p := range planOf(s.run.RunID, cfg).Stages {
		out[int64(p.FirstStep+p.Steps-1)] = true
	}
	newest := 0
	for _, p := range slices.Backward(stored) {
		if p.Whole && p.Version <= at && newest < cfg.Checkpoint.KeepPolicies {
			out[p.Version] = true
			newest++
		}
	}
	if err := s.keepWithCheckpoints(ctx, int(at), out); err != nil {
		return nil, err
	}
	evaluated, err := artifact.EvaluatedPolicies(ctx, s.store, s.layout)
	if err != nil {
		return nil, err
	}
	good, err := goodPolicies(ctx, s.store, s.run.RunID)
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
func (s *session) keepWithCheckpoints(ctx context.Context, at int, out map[int64]bool) error {
	dir := s.layout.Checkpoints()
	entries, err := checkpoint.List(ctx, s.store, dir)
	if err != nil {
		return err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	kept, err := s.kept(ctx, cursors, s.cursor(at))
	if err != nil {
		return err
	}
	pins, err := checkpoint.Pins(ctx, s.store, dir)
	if err != nil {
		return err
	}
	for cursor := range kept {
		out[int64(cursor-s.cursor(0))] = true
	}
	for cursor := range pins {
		out[int64(cursor-s.cursor(0))] = true
	}
	return nil
}

// deletePolicy takes a policy out of the store: first what says that there is
// one, then the manifest, then the files. A policy that is deleted by half is
// none, and is deleted by the next prune.
func deletePolicy(ctx context.Context, store blob.Store, layout artifact.Layout, p artifact.StoredPolicy) error {
	if err := store.Delete(ctx, layout.PolicyRef(p.Version)); err != nil {
		return err
	}
	failpoint.Hit("policy/between-deletes")
	if err := checkpoint.DropPolicy(ctx, store, layout.Policy(p.Version)); err != nil {
		return err
	}
	for _, key := range p.Files {
		if err := store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// goodPolicies are the policies of a run that a schedule starts its next
// re-training from.
func goodPolicies(ctx context.Context, store blob.Store, runID string) ([]int64, error) {
	infos, err := store.List(ctx, artifact.ScheduleRoot+"/")
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, info := range infos {
		schedule := artifact.Schedule{ID: path.Base(path.Dir(info.Key))}
		if info.Key != schedule.Good() {
			continue
		}
		good, ref, err := readGood(ctx, store, schedule)
		if err != nil {
			return nil, err
		}
		if !ref.IsZero() && good.RunID == runID {
			out = append(out, good.Policy.Version)
		}
	}
	return out, nil
}
