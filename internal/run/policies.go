package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run/artifact"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

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
	network, weights, err := checkpoint.LoadModel(ctx, store, manifest)
	if err != nil {
		return checkpoint.Policy{}, err
	}
	if weights, err = model.Merge(network, weights); err != nil {
		return checkpoint.Policy{}, err
	}
	return checkpoint.Policy{Model: network.Base(), Weights: weights, Tokenizer: rc.TokenizerJSON, Files: rc.Files}, nil
}

// HasPolicy finds out whether a run has a policy of a version.
// Errors: InvalidConfig, naming those that it has.
func HasPolicy(ctx context.Context, store blob.Store, runID string, version int64) error {
	_, ok, err := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.Policy(version).Ref())
	if err == nil && !ok {
		err = MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
	}
	return err
}

// PublishedPolicy reads a policy that a run has published.
// Errors: InvalidConfig for one that it has not.
func PublishedPolicy(ctx context.Context, store blob.Store, runID string, version int64) (checkpoint.Policy, error) {
	p, ok, err := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.Policy(version).Ref())
	if err == nil && !ok {
		err = MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
	}
	if err != nil {
		return checkpoint.Policy{}, err
	}
	out, err := checkpoint.LoadWeights(ctx, store, p.Ref)
	return out, ExplainMissing(ctx, store, runID, version, err)
}

// MissingPolicy is the error, of a kind, that a run has no policy of a version. It
// names those that it has.
func MissingPolicy(ctx context.Context, store blob.Store, kind fault.Kind, runID string, version int64) error {
	layout := artifact.Layout{RunID: runID}
	have, err := artifact.Policies(ctx, store, layout)
	if err != nil {
		return err
	}
	if len(have) == 0 {
		return fault.New(kind, fmt.Errorf("run %s has no policy %d: it has published none yet (temper run list shows the runs)", runID, version))
	}
	gone := ""
	if version > 0 {
		_, err := store.Stat(ctx, layout.Step(int(version)).TrainResult())
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return err
		}
		if err == nil {
			gone = " any more (checkpoint.keep_policies)"
		}
	}
	return fault.New(kind, fmt.Errorf("run %s has no policy %d%s: it has %s, the nearest %s", runID, version, gone, ranges(have), nearest(have, version)))
}

// ExplainMissing explains an error of reading a policy that was deleted meanwhile.
func ExplainMissing(ctx context.Context, store blob.Store, runID string, version int64, err error) error {
	if !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	_, there, lookupErr := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.Policy(version).Ref())
	if there || lookupErr != nil { // then something else is wrong with it
		return err
	}
	return MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
}

// nearest names the versions around one that is missing.
func nearest(have []int64, version int64) string {
	i, _ := slices.BinarySearch(have, version)
	switch i {
	case 0:
		return fmt.Sprintf("is %d", have[0])
	case len(have):
		return fmt.Sprintf("is %d", have[i-1])
	default:
		return fmt.Sprintf("are %d and %d", have[i-1], have[i])
	}
}

// ranges writes sorted numbers as "0, 4-6, 9".
func ranges(numbers []int64) string {
	var out []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		text := fmt.Sprint(numbers[i])
		if last > i {
			text = fmt.Sprintf("%d-%d", numbers[i], numbers[last])
		}
		out = append(out, text)
		i = last + 1
	}
	return strings.Join(out, ", ")
}
