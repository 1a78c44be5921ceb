package sampling

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/grpo"
	"temper/internal/record"
	"temper/internal/rl"
	"temper/internal/run"
)

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
		case fate != grpo.FateKept:
			row.Fate = record.FateUniform
		case kept:
			row.Fate, row.Advantage = record.FateKept, record.Finite(float64(advantage))
		default:
			row.Fate = record.FateDropped
		}
		if t.Reward > 0 && !t.Excluded() {
			pErr, pFormat := grpo.Penalties(t)
			row.PErr, row.PFormat = &pErr, &pFormat
			if r.roc.Enabled && r.roc.Mode == grpo.ModePaper {
				row.Weight = record.Finite(1 / (pErr + pFormat + r.roc.Smoothing))
			}
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b record.Row) int { return cmp.Compare(a.Rollout, b.Rollout) })
	return out
}

// storeIndex stores the index of a step and takes the rows out of the groups. It writes
// none where a group of an older program has no rows. It comes before the batch, so that
// a step whose batch is there has its index.
func storeIndex(ctx context.Context, store blob.Store, in BatchInput, groups []run.GroupRecord) error {
	var rows []record.Row
	whole := true
	for i := range groups {
		whole = whole && len(groups[i].Rows) > 0
		rows = append(rows, groups[i].Rows...)
		groups[i].Rows = nil
	}
	if !whole {
		return nil
	}
	data, err := record.Index(rows)
	if err != nil {
		return fault.OfEncoding(fmt.Errorf("encode index of step %d: %w", in.Step, err))
	}
	_, err = blob.PutBytes(ctx, store, artifact.Layout{RunID: in.Run.RunID}.Index(in.Step), data, blob.Always)
	return err
}
