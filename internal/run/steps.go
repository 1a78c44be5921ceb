package run

import (
	"context"
	"slices"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// Records reads the records of all steps of a run, in order.
func Records(ctx context.Context, store blob.Store, plan Plan) ([]StepRecord, error) {
	layout := artifact.Layout{RunID: plan.RunID}
	ends, err := stageEnds(ctx, store, plan)
	if err != nil {
		return nil, err
	}
	var keys []string
	for i, s := range plan.Stages {
		for step := plan.firstOwn(s); step <= ends[i]; step++ {
			keys = append(keys, layout.StepLog(step))
		}
	}
	return artifact.Gather[StepRecord](ctx, store, keys)
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
		end, ok, err := artifact.Newest(ctx, store, plan.firstOwn(s), s.FirstStep+s.Steps-1, artifact.Layout{RunID: plan.RunID}.StepLog)
		if ok {
			ends[i] = end
		}
		return err
	})
}

// MadeBefore counts the steps that earlier runs of a stage's problems have made: the
// ledger of the stage goes on behind them.
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
