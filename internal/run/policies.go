package run

import (
	"context"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
	"temper/trainer/checkpoint"
)

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
	return pickCheckpoint(ctx, store, plan, from)
}

// CheckpointPolicy reads a checkpoint of a run as the policy that is published of
// it: its weights with the run's tokenizer and chat template.
func CheckpointPolicy(ctx context.Context, store blob.Store, runID string, manifest blob.Ref) (checkpoint.Policy, error) {
	plan, ok, err := StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fmt.Errorf("no run %q is stored", runID)
	}
	if err != nil {
		return checkpoint.Policy{}, err
	}
	rc, err := Load(ctx, store, Ref{RunID: runID, Config: plan.Config})
	if err != nil {
		return checkpoint.Policy{}, err
	}
	model, weights, err := checkpoint.LoadModel(ctx, store, manifest)
	if err != nil {
		return checkpoint.Policy{}, err
	}
	return checkpoint.Policy{Model: model, Weights: weights, Tokenizer: rc.TokenizerJSON, Files: rc.Files}, nil
}

// HasPolicy finds out whether a run has a policy of a version.
// Errors: InvalidConfig, naming those that it has.
func HasPolicy(ctx context.Context, store blob.Store, runID string, version int64) error {
	_, ok, err := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.PolicyRef(version))
	if err == nil && !ok {
		err = MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
	}
	return err
}

// PublishedPolicy reads a policy that a run has published.
// Errors: InvalidConfig for one that it has not.
func PublishedPolicy(ctx context.Context, store blob.Store, runID string, version int64) (checkpoint.Policy, error) {
	p, ok, err := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.PolicyRef(version))
	if err == nil && !ok {
		err = MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
	}
	if err != nil {
		return checkpoint.Policy{}, err
	}
	out, err := checkpoint.LoadWeights(ctx, store, p.Ref)
	return out, vanished(ctx, store, runID, version, err)
}
