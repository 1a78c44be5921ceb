package replay

import (
	"context"
	"errors"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
)

// target is a step and what it names.
type target struct {
	ref    run.Ref
	layout artifact.Layout
	plan   run.Plan
	newest config.Run // the configuration with all amendments
	stage  run.Stage
	step   int
	// stageStep is its number in the ledger of the stage, from 1.
	stageStep int
	// before is the version of the policy that it began with, nearest the step of the
	// checkpoint before it.
	before, nearest int
	// sampler is the version that it samples with, so many updates older than before.
	sampler, staleness int
	// checkpoint is the key of the manifest that it left, "" for none.
	checkpoint string
	saved      bool // a checkpoint was asked for
	record     run.StepRecord
	recorded   bool
}

// find finds a step of a run and what it was made of. Errors: InvalidConfig.
func (b *Bench) find(ctx context.Context, runID string, step int) (*target, error) {
	plan, ok, err := run.StoredPlan(ctx, b.Store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q is stored (temper run list shows what there is)", runID)
	}
	if err != nil {
		return nil, err
	}
	t := &target{ref: run.Ref{RunID: runID, Config: plan.Config}, layout: artifact.Layout{RunID: runID}, plan: plan, step: step}
	if t.newest, err = run.ReadConfig(ctx, b.Store, t.ref); err != nil {
		return nil, err
	}
	if err := t.place(); err != nil {
		return nil, err
	}
	earlier, err := run.MadeBefore(ctx, b.Store, plan, t.stage)
	if err != nil {
		return nil, err
	}
	t.stageStep = earlier + step - t.stage.FirstStep + 1
	if t.before, err = t.policyBefore(ctx, b.Store, t.step); err != nil {
		return nil, err
	}
	if err := t.findSampler(ctx, b.Store); err != nil {
		return nil, err
	}
	return t, t.findLeft(ctx, b.Store)
}

// checkMade refuses a step that the run has not made. Errors: InvalidConfig.
func (t *target) checkMade(ctx context.Context, store blob.Store) error {
	ok, err := t.made(ctx, store, t.step)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "run %s has not made step %d", t.ref.RunID, t.step)
	}
	return err
}

// place finds the stage of the step.
func (t *target) place() error {
	if fork := t.plan.Fork; fork != nil && t.step <= fork.Step {
		return fault.Newf(fault.InvalidConfig, "step %d of run %s was made by run %s, of which it is a fork: verify that one", t.step, t.ref.RunID, fork.RunID)
	}
	for _, s := range t.plan.Stages {
		if t.step >= s.FirstStep && t.step < s.FirstStep+s.Steps {
			t.stage = s
			return nil
		}
	}
	return fault.Newf(fault.InvalidConfig, "run %s has no step %d: it has the steps 1 to %d", t.ref.RunID, t.step, t.plan.NumSteps())
}

// made reports whether the run made a step, by what steps leave and nothing deletes.
func (t *target) made(ctx context.Context, store blob.Store, step int) (bool, error) {
	for _, key := range []string{t.layout.Step(step).TrainResult(), t.layout.Step(step).Log()} {
		_, err := store.Stat(ctx, key)
		if !errors.Is(err, blob.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// policyBefore finds the policy that a step began with. A stage that ended early
// leaves steps out.
func (t *target) policyBefore(ctx context.Context, store blob.Store, step int) (int, error) {
	first := 0
	if t.plan.Fork != nil {
		first = t.plan.Fork.Step
	}
	for step--; step > first; step-- {
		if ok, err := t.made(ctx, store, step); ok || err != nil {
			return step, err
		}
	}
	return first, nil
}

// findSampler finds the policy that samples the step.
func (t *target) findSampler(ctx context.Context, store blob.Store) (err error) {
	first := t.plan.FirstOf(t.stage)
	if t.staleness = min(t.plan.Window, t.step-first); t.staleness < t.step-first {
		t.sampler = t.step - 1 - t.staleness
		return nil
	}
	t.sampler, err = t.policyBefore(ctx, store, first) // the one that the stage began with
	return err
}

// versions are the versions that may sample the step, one after another, and where each
// ends; see workflows.RLStage.
func (t *target) versions() []run.VersionSpan {
	k, tokens := t.plan.Window, t.plan.PartialTokens
	j := max(0, t.plan.FirstOf(t.stage)-(t.step-k))
	out := []run.VersionSpan{{Version: int64(t.sampler)}}
	if tokens == 0 {
		return out
	}
	for ; j < k; j++ {
		out[len(out)-1].Until = (j + 1) * tokens
		out = append(out, run.VersionSpan{Version: int64(t.step - k + j)})
	}
	return out
}

// findLeft finds the checkpoints around the step, and its record.
func (t *target) findLeft(ctx context.Context, store blob.Store) error {
	saved, err := checkpoint.List(ctx, store, t.layout.Checkpoints())
	if err != nil {
		return err
	}
	for _, c := range saved {
		if c.Step == t.plan.SFTSteps+t.step {
			t.checkpoint, t.saved = c.Ref.Key, true
		}
	}
	t.nearest = learner.Nearest(saved, t.plan.SFTSteps, t.before)
	trained, ok, err := artifact.Lookup[run.Trained](ctx, store, t.layout.Step(t.step).TrainResult())
	if err != nil && !errors.Is(err, blob.ErrCorrupt) {
		return err
	}
	if ok {
		t.saved = trained.Saved
	}
	t.record, t.recorded, err = artifact.Lookup[run.StepRecord](ctx, store, t.layout.Step(t.step).Log())
	if errors.Is(err, blob.ErrCorrupt) {
		err = nil
	}
	return err
}

// objects are the keys that the step makes, or the folders of them.
func (t *target) objects() []string {
	version := int64(t.step)
	out := []string{t.layout.Step(t.step).Dir() + "/", t.layout.Policy(version).Dir() + "/", t.layout.Policy(version).Ref()}
	if t.checkpoint != "" {
		out = append(out, t.checkpoint)
	}
	return out
}
