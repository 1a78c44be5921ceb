package run

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run/artifact"
	"temper/internal/series"
	"temper/trainer/checkpoint"
)

// Retained reports why checkpoints of a run stay, by cursor. Those that it leaves out are
// deleted by the next save. It is a function of the cursors and of the batches of
// steps, which are stored before the checkpoints after them.
func Retained(ctx context.Context, store blob.Store, runID string, cfg config.Run, cursors []int) (map[int]string, error) {
	cursors = slices.Sorted(slices.Values(cursors))
	out := map[int]string{}
	keep := func(cursor int, why string) {
		if slices.Contains(cursors, cursor) && out[cursor] == "" {
			out[cursor] = why
		}
	}
	sft := cfg.SFT.Steps
	keep(sft, "end of SFT")
	keep(sft+cfg.Fork.Step, "start of the fork")
	for _, p := range PlanOf(runID, cfg).Stages {
		keep(sft+p.FirstStep+p.Steps-1, "end of stage "+p.Name)
	}
	pins, err := checkpoint.Pins(ctx, store, artifact.Layout{RunID: runID}.Checkpoints())
	if err != nil {
		return nil, err
	}
	for cursor, p := range pins {
		keep(cursor, "pinned: "+p.Reason)
	}
	c := cfg.Checkpoint
	for i, cursor := range cursors {
		if i >= len(cursors)-c.Keep {
			keep(cursor, fmt.Sprintf("one of the newest %d", c.Keep))
		}
		if n := cursor - sft; c.EveryNth > 0 && n > 0 && n%c.EveryNth == 0 {
			keep(cursor, fmt.Sprintf("step divides by %d", c.EveryNth))
		}
	}
	best, err := BestCursors(ctx, store, PlanOf(runID, cfg), cursors, newestOf(cursors)-sft)
	for i, cursor := range best {
		if i < max(1, c.Best) { // the best one is never deleted
			keep(cursor, fmt.Sprintf("one of the best %d by %s", max(1, c.Best), series.Reward))
		}
	}
	return out, err
}

func newestOf(cursors []int) int {
	if len(cursors) == 0 {
		return 0
	}
	return cursors[len(cursors)-1]
}

// BestCursors orders checkpoints from the end of SFT on by the rewards of their
// policies, the best first and of equal ones the newest. The reward of a policy is the
// mean of the first step that sampled with it. A checkpoint without such a step, up to
// newest, is left out.
func BestCursors(ctx context.Context, store blob.Store, plan Plan, cursors []int, newest int) ([]int, error) {
	reward := map[int]float64{}
	var out []int
	for _, cursor := range cursors {
		step, ok := plan.sampledWith(cursor - plan.SFTSteps)
		if cursor < plan.SFTSteps || !ok || step > newest {
			continue
		}
		key := artifact.Layout{RunID: plan.RunID}.Step(step).BatchStats()
		built, ok, err := artifact.Lookup[BuiltBatch](ctx, store, key)
		if err != nil {
			return nil, blob.AtRef(err, blob.Ref{Key: key})
		}
		if ok {
			reward[cursor] = built.Stats.RewardMean
			out = append(out, cursor)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(reward[b], reward[a]), cmp.Compare(b, a)) })
	return out, nil
}

// FindCheckpoint returns the step and the manifest of a checkpoint of a stored
// run: that of a step, the best, or the newest. Errors: InvalidConfig.
func FindCheckpoint(ctx context.Context, store blob.Store, from ForkFrom) (step int, manifest blob.Ref, err error) {
	plan, ok, err := StoredPlan(ctx, store, from.RunID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q is stored (temper run list shows what there is)", from.RunID)
	}
	if err != nil {
		return 0, blob.Ref{}, err
	}
	return PickCheckpoint(ctx, store, plan, from)
}

// PickCheckpoint finds a checkpoint of a run from the end of SFT on.
func PickCheckpoint(ctx context.Context, store blob.Store, run Plan, from ForkFrom) (step int, manifest blob.Ref, err error) {
	refuse := func(format string, args ...any) (int, blob.Ref, error) {
		return 0, blob.Ref{}, fault.Newf(fault.InvalidConfig, format, args...)
	}
	saved, err := checkpoint.List(ctx, store, artifact.Layout{RunID: run.RunID}.Checkpoints())
	if err != nil {
		return 0, blob.Ref{}, err
	}
	saved = slices.DeleteFunc(saved, func(e checkpoint.Entry) bool { return e.Step < run.SFTSteps })
	if len(saved) == 0 {
		return refuse("run %s has no checkpoint after SFT yet: wait for one, or submit its configuration as a run of its own", run.RunID)
	}
	step = from.Step
	switch from.From {
	case "":
	case FromLast:
		step = saved[len(saved)-1].Step - run.SFTSteps
	case FromBest:
		if step, err = bestCheckpoint(ctx, store, run, saved); err != nil {
			return 0, blob.Ref{}, err
		}
	default:
		return refuse("from is %q, want %s or %s, or a step", from.From, FromBest, FromLast)
	}
	var steps []string
	for _, e := range saved {
		if e.Step == run.SFTSteps+step {
			return step, e.Ref, nil
		}
		steps = append(steps, fmt.Sprint(e.Step-run.SFTSteps))
	}
	return refuse("run %s has no checkpoint of step %d: name one of %s", run.RunID, step, strings.Join(steps, ", "))
}

// bestCheckpoint is the first in the order of rewards of BestCursors.
func bestCheckpoint(ctx context.Context, store blob.Store, run Plan, saved []checkpoint.Entry) (int, error) {
	var cursors []int
	for _, e := range saved {
		cursors = append(cursors, e.Step)
	}
	best, err := BestCursors(ctx, store, run, cursors, math.MaxInt)
	if err != nil {
		return 0, err
	}
	if len(best) == 0 {
		return 0, fault.Newf(fault.InvalidConfig,
			"no step of run %s was made from a checkpoint that is left, so that none is known to be best: name a step or %s", run.RunID, FromLast)
	}
	return best[0] - run.SFTSteps, nil
}
