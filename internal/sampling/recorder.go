package sampling

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/grpo"
	"temper/internal/proc/failpoint"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
	"temper/internal/series"
)

// recorder turns each group that ends into samples for the trainer and a record of
// what became of it. Which trajectories it keeps is a function of the group and the
// configuration: any worker would keep the same.
type recorder struct {
	store  blob.Store
	layout artifact.Layout
	step   int
	groups grpo.Config
	// signals says that groups with a signal are counted.
	signals bool
	partial bool // trajectories may have several versions
}

func newRecorder(store blob.Store, layout artifact.Layout, stage, step int, cfg config.Run) recorder {
	then := cfg.At(step).InStage(stage - 1)
	update := then.RL
	out := recorder{
		store: store, layout: layout, step: step,
		groups: grpo.Config{
			GroupSize: update.GroupSize, RoC: update.RoC, Estimator: update.Advantage, K: update.AdvantageK,
			Seed: rl.Seed(cfg.Seed, "batch", uint64(step)),
		},
		signals: update.Refill.Rounds > 0, partial: update.PartialRolloutTokens > 0,
	}
	if update.Loss.Overlong == config.OverlongSoft {
		out.groups.Penalty = grpo.Overlong(then.Stages[stage-1].MaxResponseTokens, update.Loss.OverlongBuffer)
	}
	return out
}

// record stores the samples of a group. Errors: Corrupt for a group that must not be
// trained on.
func (r recorder) record(ctx context.Context, g storedGroup) (run.GroupRecord, error) {
	failpoint.Hit("sampling/before-samples")
	built, err := grpo.BuildGroup(g.Group, r.groups)
	if err != nil {
		return run.GroupRecord{}, fault.Newf(fault.Corrupt, "step %d: %w", r.step, err)
	}
	kept, samples := built.Kept, built.Samples
	out := run.GroupRecord{
		ProblemID: g.Problem.ID, Fate: built.Fate, NumSamples: len(samples), Moments: built.Moments, Trajectories: g.ref,
		Released: countReleased(g.Trajectories, built.Fate),
	}
	for i := range g.Trajectories {
		t := &g.Trajectories[i]
		if t.Excluded() {
			out.InfraErrors++
			continue
		}
		out.Spread.Add(t)
		out.All.Add(t)
		if r.partial {
			countVersions(&out, t)
		}
		if t.Reward > 0 {
			out.Correct.Add(t)
			pErr, pFormat := r.groups.RoC.Penalties(t)
			out.ErrorPenalties = append(out.ErrorPenalties, pErr)
			out.FormatPenalties = append(out.FormatPenalties, pFormat)
		}
	}
	for i := range kept {
		if kept[i].Reward > 0 {
			out.KeptCorrect.Add(&kept[i])
		}
	}
	for i := range samples {
		out.Spread.Advantages.Add(float64(samples[i].Advantage))
	}
	out.Rows = r.rows(g.Trajectories, samples, built.Fate)
	if len(samples) == 0 {
		return out, nil
	}
	var buf bytes.Buffer
	size := 0
	for i := range samples {
		size += sampleBytes*len(samples[i].Tokens) + sampleHead
	}
	buf.Grow(size)
	if err := rl.WriteSamples(&buf, samples); err != nil {
		return run.GroupRecord{}, fault.Newf(fault.Corrupt, "step %d: %w", r.step, err)
	}
	out.Samples, err = blob.PutBytes(ctx, r.store, r.layout.Step(r.step).Samples(g.Problem.ID), buf.Bytes(), blob.Always)
	return out, err
}

// countReleased counts as the released code does what its rejection of equal rewards leaves.
func countReleased(ts []rl.Trajectory, fate grpo.Fate) series.Released {
	var out series.Released
	if fate != grpo.FateKept && fate != grpo.FateTooSmall {
		return out
	}
	out.Groups = 1
	for i := range ts {
		if ts[i].Excluded() {
			continue
		}
		c := grpo.AsReleased(&ts[i])
		penalty, _ := c.Penalties()
		out.Add(c.Results, c.Errors, penalty, c.Answers)
	}
	return out
}

// countVersions counts the tokens that each version has sampled.
func countVersions(out *run.GroupRecord, t *rl.Trajectory) {
	if len(t.Spans) > 0 {
		out.Partial++
	}
	for i, sampled := range t.LossMask {
		if sampled {
			out.Versions = series.AddTokens(out.Versions, t.VersionAt(i), 1)
		}
	}
}

// Largest stored size of a sample in bytes: of each token, and beside the tokens.
const (
	sampleBytes = 9
	sampleHead  = 512
)

// storeShard stores the records of the groups of one call, for the batch.
func (r recorder) storeShard(ctx context.Context, groups []run.GroupRecord) (blob.Ref, error) {
	var ids []byte
	for i := range groups {
		ids = append(append(ids, groups[i].ProblemID...), 0)
	}
	data, err := json.Marshal(groups)
	if err != nil {
		return blob.Ref{}, fault.OfEncoding(fmt.Errorf("encode groups of step %d: %w", r.step, err))
	}
	failpoint.Hit("sampling/before-shard")
	return blob.PutBytes(ctx, r.store, r.layout.Step(r.step).Shard(blob.RefOf("", ids).SHA256), data, blob.Always)
}

// rows say of each trajectory of a group what became of it, and by which numbers.
func (r recorder) rows(ts []rl.Trajectory, samples []rl.Sample, fate grpo.Fate) []record.Row {
	advantages := make(map[int]float32, len(samples))
	for i := range samples {
		advantages[samples[i].Rollout] = samples[i].Advantage
	}
	out := make([]record.Row, 0, len(ts))
	for i := range ts {
		t := &ts[i]
		row := record.RowOf(t)
		advantage, kept := advantages[t.Rollout]
		switch {
		case t.Excluded():
			row.Fate = record.FateExcluded
		case fate == grpo.FateTooSmall:
			row.Fate = record.FateDropped
		case fate != grpo.FateKept:
			row.Fate = record.FateUniform
		case kept:
			row.Fate, row.Advantage = record.FateKept, record.Finite(float64(advantage))
		default:
			row.Fate = record.FateDropped
		}
		if t.Reward > 0 && !t.Excluded() {
			pErr, pFormat := r.groups.RoC.Penalties(t)
			row.PErr, row.PFormat = &pErr, &pFormat
			if roc := r.groups.RoC; roc.Enabled && roc.Mode == grpo.ModePaper {
				row.Weight = record.Finite(roc.Weight(pErr, pFormat))
			}
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b record.Row) int { return cmp.Compare(a.Rollout, b.Rollout) })
	return out
}

// storeIndex stores the index of a step, with whitened advantages, and takes the rows out
// of the groups. It runs before the batch is stored, so that a step with a batch has its
// index.
func storeIndex(ctx context.Context, store blob.Store, in BatchInput, batch run.StoredBatch) error {
	var rows []record.Row
	for i := range batch.Groups {
		g := &batch.Groups[i]
		rows = append(rows, g.Rows...)
		g.Rows = nil
	}
	if len(rows) == 0 {
		return nil
	}
	for i := range rows {
		if a := rows[i].Advantage; a != nil && batch.Whitening != nil {
			rows[i].Advantage = record.Finite(float64(float32(batch.Whitening.Apply(*a))))
		}
	}
	data, err := record.Index(rows)
	if err != nil {
		return fault.OfEncoding(fmt.Errorf("encode index of step %d: %w", in.Step, err))
	}
	_, err = blob.PutBytes(ctx, store, artifact.Layout{RunID: in.Run.RunID}.Step(in.Step).Index(), data, blob.Always)
	return err
}
