package sampling

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/grpo"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

// BatchInput asks for the batch of a step.
type BatchInput struct {
	Run        run.Ref  `json:"run"`
	Stage      int      `json:"stage"`
	Step       int      `json:"step"`
	ProblemIDs []string `json:"problem_ids"`
	// Shards are what SampleGroups has stored of the groups, see run.Sampled. Without
	// them the groups themselves are read.
	Shards []blob.Ref `json:"shards,omitempty"`
}

// BuildBatch makes the batch of a step: a list of references to samples, which were
// stored when each group ended. It reads one record of each shard and no content.
func BuildBatch(ctx context.Context, store blob.Store, in BatchInput) (run.BuiltBatch, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	done, ok, err := artifact.Lookup[run.BuiltBatch](ctx, store, layout.Step(in.Step).BatchStats())
	if err != nil {
		return done, blob.AtRef(err, blob.Ref{Key: layout.Step(in.Step).BatchStats()})
	}
	if ok {
		return done, dropPassing(ctx, store, layout, in)
	}
	batch, ref, err := storedBatch(ctx, store, layout.Step(in.Step).Batch())
	if blob.IsDamage(err) {
		batch, ref, err = collectBatch(ctx, store, in)
	}
	if err != nil {
		return run.BuiltBatch{}, err
	}
	failpoint.Hit("batch/before-drop")
	if err := dropPassing(ctx, store, layout, in); err != nil {
		return run.BuiltBatch{}, err
	}
	out := run.BuiltBatch{Batch: ref, Stats: rolloutNumbers(batch.Groups, in.ProblemIDs)}
	out.Stats.Spread.Advantages = whiten(out.Stats.Spread.Advantages, batch.Whitening)
	for i := range batch.Groups {
		out.Samples += batch.Groups[i].NumSamples
	}
	failpoint.Hit("batch/before-stats")
	return artifact.PutOnce(ctx, store, layout.Step(in.Step).BatchStats(), out)
}

// dropPassing deletes the objects that the batch replaces: the shards, and the trajectories
// that were stored before their groups were complete. Objects that an abandoned worker
// writes later are never read, and no part of the step.
func dropPassing(ctx context.Context, store blob.Store, layout artifact.Layout, in BatchInput) error {
	for _, shard := range in.Shards {
		if err := store.Delete(ctx, shard.Key); err != nil {
			return err
		}
	}
	for _, folder := range []string{layout.Step(in.Step).EndedFolder(), layout.Step(in.Step).PartsFolder()} {
		passing, err := store.List(ctx, folder+"/")
		if err != nil {
			return err
		}
		err = artifact.Each(ctx, len(passing), func(ctx context.Context, i int) error { return store.Delete(ctx, passing[i].Key) })
		if err != nil {
			return err
		}
	}
	return nil
}

// storedBatch reads the batch that an earlier attempt has stored.
func storedBatch(ctx context.Context, store blob.Store, key string) (run.StoredBatch, blob.Ref, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return run.StoredBatch{}, blob.Ref{}, err
	}
	var batch run.StoredBatch
	if err := json.Unmarshal(data, &batch); err != nil {
		return batch, blob.Ref{}, fmt.Errorf("decode %s: %w: %w", store.Locate(key), err, blob.ErrCorrupt)
	}
	return batch, blob.RefOf(key, data), nil
}

// collectBatch stores the batch, from the shards or from the groups themselves.
func collectBatch(ctx context.Context, store blob.Store, in BatchInput) (run.StoredBatch, blob.Ref, error) {
	batch := run.StoredBatch{Step: in.Step}
	var err error
	if len(in.Shards) > 0 {
		batch.Groups, err = readShards(ctx, store, in.Shards)
	}
	if len(in.Shards) == 0 || blob.IsDamage(err) { // they are made of the groups, which are there
		batch.Groups, err = recordGroups(ctx, store, in)
	}
	if err == nil {
		err = checkComplete(batch.Groups, in)
	}
	if err != nil {
		return batch, blob.Ref{}, err
	}
	batch.Whitening = whitening(batch.Groups)
	if err := storeIndex(ctx, store, in, batch); err != nil {
		return batch, blob.Ref{}, err
	}
	failpoint.Hit("batch/before-batch")
	data, err := json.Marshal(batch)
	if err != nil {
		return batch, blob.Ref{}, fault.OfEncoding(fmt.Errorf("encode batch of step %d: %w", in.Step, err))
	}
	ref, err := blob.PutBytes(ctx, store, artifact.Layout{RunID: in.Run.RunID}.Step(in.Step).Batch(), data, blob.Always)
	return batch, ref, err
}

// whitening is how the advantages of a batch are normalized: from the sums of its groups,
// which are sorted by problem. It is nil for an estimator that does not whiten.
func whitening(groups []run.GroupRecord) *grpo.Whitening {
	var all grpo.Moments
	for i := range groups {
		if m := groups[i].Moments; m != nil {
			all.Merge(*m)
		}
	}
	return all.Whitening()
}

// whiten is the range of advantages after whitening.
func whiten(r series.Range, w *grpo.Whitening) series.Range {
	if w == nil || r.Num == 0 {
		return r
	}
	return series.Range{Num: r.Num, Sum: w.Apply(r.Mean()) * float64(r.Num), Min: w.Apply(r.Min), Max: w.Apply(r.Max)}
}

func readShards(ctx context.Context, store blob.Store, shards []blob.Ref) ([]run.GroupRecord, error) {
	var out []run.GroupRecord
	for _, shard := range shards {
		data, err := blob.ReadRef(ctx, store, shard)
		if err != nil {
			return nil, err
		}
		var groups []run.GroupRecord
		if err := json.Unmarshal(data, &groups); err != nil {
			return nil, fmt.Errorf("decode %s: %w: %w", store.Locate(shard.Key), err, blob.ErrCorrupt)
		}
		out = append(out, groups...)
	}
	return out, nil
}

// recordGroups makes the records of groups again, with equal content, when a shard is gone
// or damaged.
func recordGroups(ctx context.Context, store blob.Store, in BatchInput) ([]run.GroupRecord, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	cfg, err := run.ReadConfig(ctx, store, in.Run)
	if err != nil {
		return nil, err
	}
	problems, err := run.ProblemsByID(ctx, store, layout.Stage(in.Stage).Train(), in.ProblemIDs)
	if err != nil {
		return nil, err
	}
	recorder := newRecorder(store, layout, in.Stage, in.Step, cfg)
	var out []run.GroupRecord
	for _, p := range problems {
		key := layout.Step(in.Step).Group(p.ID)
		group, ok, err := lookupGroup(ctx, store, key, p)
		if err == nil && !ok {
			err = fmt.Errorf("%s: no group of problem %s in step %d: %w", store.Locate(key), p.ID, in.Step, blob.ErrNotExist)
		}
		if err != nil {
			return nil, blob.AtRef(err, blob.Ref{Key: key})
		}
		record, err := recorder.record(ctx, group)
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, nil
}

// checkComplete sorts groups by problem and refuses one that is missing, was not
// asked for or is there twice.
func checkComplete(groups []run.GroupRecord, in BatchInput) error {
	slices.SortFunc(groups, func(a, b run.GroupRecord) int { return cmp.Compare(a.ProblemID, b.ProblemID) })
	var have []string
	for i := range groups {
		have = append(have, groups[i].ProblemID)
	}
	if want := slices.Sorted(slices.Values(in.ProblemIDs)); !slices.Equal(have, want) {
		return fault.Newf(fault.Corrupt, "batch of step %d: the shards have %d groups, which are not those of the step's %d problems", in.Step, len(have), len(want))
	}
	return nil
}

// rolloutNumbers returns the numbers of a step over all its trajectories. It sums in the
// order of the step's problems, so that the bits do not depend on shards.
func rolloutNumbers(groups []run.GroupRecord, order []string) run.StepRollouts {
	byID := make(map[string]*run.GroupRecord, len(groups))
	for i := range groups {
		byID[groups[i].ProblemID] = &groups[i]
	}
	out := run.StepRollouts{Groups: len(groups)}
	var spread series.Spread
	var all, correct, kept series.Tally
	var pErr, pFormat float64
	for _, id := range order {
		g := byID[id]
		all.Merge(g.All)
		correct.Merge(g.Correct)
		kept.Merge(g.KeptCorrect)
		out.InfraErrors += g.InfraErrors
		out.Kept += g.NumSamples
		out.Partial += g.Partial
		out.Released.Merge(g.Released)
		spread.Merge(g.Spread)
		for _, v := range g.Versions {
			out.Versions = series.AddTokens(out.Versions, v.Version, v.Tokens)
		}
		switch g.Fate {
		case grpo.FateAllCorrect:
			out.GroupsAllCorrect++
		case grpo.FateAllWrong:
			out.GroupsAllWrong++
		case grpo.FateTooSmall:
			out.GroupsTooSmall++
		case grpo.FateKept, grpo.FateEmpty:
		}
		for i := range g.ErrorPenalties {
			pErr += g.ErrorPenalties[i]
			pFormat += g.FormatPenalties[i]
		}
	}
	out.RewardMean = all.Mean(all.Reward)
	out.ToolErrorRate, out.CorrectErrorRate, out.KeptErrorRate = all.ToolErrorRate(), correct.ToolErrorRate(), kept.ToolErrorRate()
	out.MeanResponseTokens, out.MeanTurns = all.Mean(float64(all.Tokens)), all.Mean(float64(all.Turns))
	out.MeanCalls, out.ClipRatio = all.Mean(float64(all.Calls)), all.Mean(float64(all.Clipped))
	out.Trajectories = all.Num + out.InfraErrors
	out.Spread = spread.Summary()
	out.PErrMean, out.PFormatMean = correct.Mean(pErr), correct.Mean(pFormat)
	return out
}
