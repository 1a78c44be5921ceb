package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Records reads the records of all steps of a run, in order.
func Records(ctx context.Context, store blob.Store, plan Plan) ([]StepRecord, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	ends, err := stageEnds(ctx, store, plan)
	if err != nil {
		return nil, err
	}
	var steps []int
	for i, s := range plan.Stages {
		for step := plan.firstOwn(s); step <= ends[i]; step++ {
			steps = append(steps, step)
		}
	}
	return gatherRecords(ctx, store, layout, steps)
}

// gatherRecords reads the records of steps, in order: those of a block that is there from
// the block, and each other one by itself.
func gatherRecords(ctx context.Context, store blob.Store, layout artifact.Layout, steps []int) ([]StepRecord, error) {
	var blocks []int
	for _, step := range steps {
		if n := blockOf(step); n*artifact.SeriesSteps <= steps[len(steps)-1] && !slices.Contains(blocks, n) {
			blocks = append(blocks, n)
		}
	}
	known, err := readBlocks(ctx, store, layout, blocks)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, step := range steps {
		if _, ok := known[step]; !ok {
			keys = append(keys, layout.Step(step).Log())
		}
	}
	rest, err := artifact.Gather[StepRecord](ctx, store, keys)
	if err != nil {
		return nil, err
	}
	out := make([]StepRecord, 0, len(steps))
	for _, step := range steps {
		if r, ok := known[step]; ok {
			out = append(out, r)
		} else {
			out, rest = append(out, rest[0]), rest[1:]
		}
	}
	return out, nil
}

// blockOf is the block that a step is in.
func blockOf(step int) int { return (step + artifact.SeriesSteps - 1) / artifact.SeriesSteps }

// readBlocks reads the records of blocks, by step. A block that is not there or is damaged
// has none: the records themselves are the truth.
func readBlocks(ctx context.Context, store blob.Store, layout artifact.Layout, blocks []int) (map[int]StepRecord, error) {
	parts := make([][]StepRecord, len(blocks))
	err := artifact.Each(ctx, len(blocks), func(ctx context.Context, i int) error {
		data, err := blob.ReadKey(ctx, store, layout.Series(blocks[i]))
		if blob.IsDamage(err) {
			return nil
		}
		if err != nil {
			return err
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		for dec.More() {
			var r StepRecord
			if dec.Decode(&r) != nil || blockOf(r.Step) != blocks[i] {
				parts[i] = nil
				return nil
			}
			parts[i] = append(parts[i], r)
		}
		return nil
	})
	out := map[int]StepRecord{}
	for _, part := range parts {
		for _, r := range part {
			out[r.Step] = r
		}
	}
	return out, err
}

// StoreBlock stores the records of the block that ends with a step. It leaves out steps
// that the run has not made itself. A failure does no harm: readers then read the records
// one by one.
func StoreBlock(ctx context.Context, store blob.Store, layout artifact.Layout, step int) {
	if step%artifact.SeriesSteps != 0 {
		return
	}
	records := make([]json.RawMessage, artifact.SeriesSteps)
	err := artifact.Each(ctx, len(records), func(ctx context.Context, i int) error {
		data, err := blob.ReadKey(ctx, store, layout.Step(step-artifact.SeriesSteps+1+i).Log())
		if errors.Is(err, blob.ErrNotExist) {
			return nil
		}
		records[i] = data
		return err
	})
	if err != nil {
		return
	}
	var lines bytes.Buffer
	for _, r := range records {
		if len(r) > 0 && json.Compact(&lines, r) == nil {
			lines.WriteByte('\n')
		}
	}
	_, _ = blob.PutBytes(ctx, store, layout.Series(blockOf(step)), lines.Bytes(), blob.Always) // see above
}

// NewestStep is the last step of a run that has a record, 0 for none.
func NewestStep(ctx context.Context, store blob.Store, plan Plan) (int, error) {
	ends, err := stageEnds(ctx, store, plan)
	if err != nil || len(ends) == 0 {
		return 0, err
	}
	return slices.Max(ends), nil
}

// NextSteps are the steps one of which the run makes after a step: the one that
// follows, or the first of a later stage, when a stage ends early.
func (p Plan) NextSteps(step int) []int {
	if p.Fork != nil {
		step = max(step, p.Fork.Step)
	}
	out := []int{step + 1}
	for _, s := range p.Stages {
		if s.FirstStep > step+1 {
			out = append(out, s.FirstStep)
		}
	}
	return out
}

// firstOwn is the first step of a stage that the run itself makes.
func (p Plan) firstOwn(s Stage) int {
	if p.Fork != nil {
		return max(s.FirstStep, p.Fork.Step+1)
	}
	return s.FirstStep
}

// stageEnds finds the last step of each stage that has a record, 0 for none. The
// steps of a stage are made in order, so that no key needs to be listed: below
// the steps lies most of what a run has.
func stageEnds(ctx context.Context, store blob.Store, plan Plan) ([]int, error) {
	ends := make([]int, len(plan.Stages))
	return ends, artifact.Each(ctx, len(ends), func(ctx context.Context, i int) error {
		s := plan.Stages[i]
		end, ok, err := artifact.Newest(ctx, store, plan.firstOwn(s), s.FirstStep+s.Steps-1, func(step int) string { return artifact.Layout{RunID: plan.RunID}.Step(step).Log() })
		if ok {
			ends[i] = end
		}
		return err
	})
}

// MadeBefore counts the steps that earlier runs of a stage's problems have made: the ledger
// of the stage continues after them.
func MadeBefore(ctx context.Context, store blob.Store, plan Plan, stage Stage) (int, error) {
	ends, err := stageEnds(ctx, store, plan)
	if err != nil {
		return 0, err
	}
	made := 0
	for i, s := range plan.Stages {
		if s.Index >= stage.Index || s.Source() != stage.Source() {
			continue
		}
		if ends[i] > 0 {
			made += ends[i] - plan.firstOwn(s) + 1
		}
		if plan.Fork != nil && i < len(plan.Fork.Made) {
			made += plan.Fork.Made[i]
		}
	}
	return made, nil
}
