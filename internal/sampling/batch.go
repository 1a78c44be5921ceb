package sampling

import (
	"context"
	"encoding/json"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/dataset"
	"temper/internal/failpoint"
	"temper/internal/fault"
	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/series"
)

// SelectInput asks for the problems of a step.
type SelectInput struct {
	Run   run.Ref `json:"run"`
	Stage int     `json:"stage"`
	Step  int     `json:"step"`
	// StageStep counts the step within its stage, from 1.
	StageStep int `json:"stage_step"`
}

// SelectProblems names the problems of a step: the stage's problems less the
// filtered ones, each exactly once an epoch, in an order drawn from the seed.
func SelectProblems(ctx context.Context, store blob.Store, in SelectInput) ([]string, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	cfg, err := run.ReadConfig(ctx, store, in.Run)
	if err != nil {
		return nil, err
	}
	problems, err := run.ReadProblems(ctx, store, layout.TrainProblems(in.Stage))
	if err != nil {
		return nil, err
	}
	filter, _, err := artifact.Lookup[run.StoredFilter](ctx, store, layout.Filter(in.Stage))
	if err != nil {
		return nil, err
	}
	removed := make(map[string]bool, len(filter.RemovedIDs))
	for _, id := range filter.RemovedIDs {
		removed[id] = true
	}
	ledger, err := dataset.NewLedger(rl.Seed(cfg.Seed, "ledger", uint64(in.Stage)), problems, cfg.RL.ProblemsPerStep, removed)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, p := range ledger.Step(in.StageStep - 1) {
		ids = append(ids, p.ID)
	}
	return ids, nil
}

// BatchInput asks for the batch of a step from its stored groups.
type BatchInput struct {
	Run        run.Ref  `json:"run"`
	Stage      int      `json:"stage"`
	Step       int      `json:"step"`
	ProblemIDs []string `json:"problem_ids"`
}

// BuildBatch turns the groups of a step into the batch that the trainer gets.
func BuildBatch(ctx context.Context, store blob.Store, in BatchInput) (run.BuiltBatch, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if done, ok, err := artifact.Lookup[run.BuiltBatch](ctx, store, layout.BatchStats(in.Step)); ok || err != nil {
		return done, err
	}
	cfg, err := run.ReadConfig(ctx, store, in.Run)
	if err != nil {
		return run.BuiltBatch{}, err
	}
	groups, err := readGroups(ctx, store, layout, in)
	if err != nil {
		return run.BuiltBatch{}, err
	}
	failpoint.Hit("batch/before-batch")
	update := cfg.At(in.Step).RL
	batch, stats, err := grpo.BuildBatch(in.Step, groups, update.GroupSize, update.RoC, rl.Seed(cfg.Seed, "batch", uint64(in.Step)))
	if err != nil {
		return run.BuiltBatch{}, fault.New(fault.Corrupt, err)
	}
	out := run.BuiltBatch{Samples: len(batch.Samples), Stats: rolloutNumbers(groups, stats)}
	if out.Samples > 0 {
		data, err := json.Marshal(batch)
		if err != nil {
			return run.BuiltBatch{}, fmt.Errorf("encode batch of step %d: %w", in.Step, err)
		}
		if out.Batch, err = blob.PutBytes(ctx, store, layout.Batch(in.Step), data, blob.Always); err != nil {
			return run.BuiltBatch{}, err
		}
	}
	failpoint.Hit("batch/before-stats")
	return artifact.PutOnce(ctx, store, layout.BatchStats(in.Step), out)
}

// readGroups reads the groups of a step in the order of its problems.
func readGroups(ctx context.Context, store blob.Store, layout artifact.Layout, in BatchInput) ([]rl.Group, error) {
	problems, err := run.ProblemsByID(ctx, store, layout.TrainProblems(in.Stage), in.ProblemIDs)
	if err != nil {
		return nil, err
	}
	groups := make([]rl.Group, len(problems))
	for i, p := range problems {
		group, ok, err := lookupGroup(ctx, store, layout.Group(in.Step, p.ID), p)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s: no group of problem %s in step %d", store.Locate(layout.Group(in.Step, p.ID)), p.ID, in.Step)
		}
		groups[i] = group
	}
	return groups, nil
}

// rolloutNumbers are the numbers of a step over all that was sampled.
func rolloutNumbers(groups []rl.Group, stats grpo.Stats) run.StepRollouts {
	var all, correct counts
	var pErr, pFormat float64
	for _, g := range groups {
		for i := range g.Trajectories {
			t := &g.Trajectories[i]
			all.add(t)
			if t.Reward > 0 && t.StopReason != rl.StopInfraError {
				correct.add(t)
				e, f := grpo.Penalties(t)
				pErr += e
				pFormat += f
			}
		}
	}
	return run.StepRollouts{
		RewardMean:    all.mean(all.reward),
		ToolErrorRate: series.Ratio(all.failed, all.calls), CorrectErrorRate: series.Ratio(correct.failed, correct.calls),
		KeptErrorRate:      stats.CorrectAfter.ToolErrorsFrac,
		MeanResponseTokens: all.mean(float64(all.tokens)), MeanTurns: all.mean(float64(all.turns)),
		MeanCalls: all.mean(float64(all.calls)), ClipRatio: all.mean(float64(all.clipped)),
		Groups: stats.Groups, GroupsAllCorrect: stats.DroppedAllCorrect, GroupsAllWrong: stats.DroppedAllWrong,
		Trajectories: all.n + all.infra, Kept: stats.Kept, InfraErrors: all.infra,
		PErrMean: correct.mean(pErr), PFormatMean: correct.mean(pFormat),
	}
}
