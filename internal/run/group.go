package run

import (
	"bytes"
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/internal/run/record"
	"temper/internal/series"
)

// GroupRecord is the result of the group of one problem in a step. It is made when the
// group ends and is all that the batch of the step needs to know of it.
type GroupRecord struct {
	ProblemID string    `json:"problem_id"`
	Fate      grpo.Fate `json:"fate"`
	// Samples are the samples of the group for the trainer; none for a dropped group.
	Samples    blob.Ref `json:"samples,omitzero"`
	NumSamples int      `json:"num_samples,omitempty"`
	// Trajectories are all that was sampled of the problem.
	Trajectories blob.Ref `json:"trajectories,omitzero"`
	// InfraErrors counts trajectories that the infrastructure lost. All sums up the
	// others, Correct the correct ones among those, KeptCorrect the correct ones
	// that were kept.
	InfraErrors int          `json:"infra_errors,omitempty"`
	All         series.Tally `json:"all,omitzero"`
	Correct     series.Tally `json:"correct,omitzero"`
	KeptCorrect series.Tally `json:"kept_correct,omitzero"`
	// Partial are the trajectories that several policies sampled, and Versions what each has
	// sampled, where rl.partial_rollout_tokens is set.
	Partial  int                    `json:"partial,omitempty"`
	Versions []series.VersionTokens `json:"versions,omitempty"`
	// ErrorPenalties and FormatPenalties are p_err and p_format of the correct
	// trajectories, by Rollout (arXiv 2508.20722, equations 5 and 6).
	ErrorPenalties  []float64 `json:"p_err,omitempty"`
	FormatPenalties []float64 `json:"p_format,omitempty"`
	// Released are the counts of the released code, zero for a group with equal rewards.
	Released series.Released `json:"released,omitzero"`
	// Moments sums up the advantages of the samples, where the estimator of rl.advantage
	// whitens those of the batch; they are not whitened yet.
	Moments *grpo.Moments `json:"moments,omitempty"`
	// Spread is how far apart the trajectories are.
	Spread series.Spread `json:"spread,omitzero"`
	// Rows are the rows of the trajectories in the index of the step, by Rollout. They pass
	// from the shard to the index and are in no batch.
	Rows []record.Row `json:"rows,omitempty"`
}

// StoredBatch is the batch of a step: the groups of its problems, ordered by problem.
type StoredBatch struct {
	Step   int           `json:"step"`
	Groups []GroupRecord `json:"groups,omitempty"`
	// Whitening normalizes the advantages of the samples; nil where rl.advantage does not.
	Whitening *grpo.Whitening `json:"whitening,omitempty"`
}

// ReadTrajectories reads stored trajectories in either form of package record; those of
// a compact record have no Text. Errors: blob.ErrNotExist; blob.ErrCorrupt names the
// trajectory.
func ReadTrajectories(ctx context.Context, store blob.Store, key string) ([]rl.Trajectory, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, err
	}
	return decodeTrajectories(store, key, data)
}

// ReadUpToTokens reads what is stored under the key of a group, of a compact record no more
// than its tokens; those who look for texts need nothing else. It asks for so many bytes
// first, and a second time where they are too few, and appends to data, which is empty.
// Errors: blob.ErrNotExist; blob.ErrCorrupt.
func ReadUpToTokens(ctx context.Context, store blob.Store, key string, first int, data []byte) ([]byte, error) {
	data, err := appendRange(ctx, store, key, data, first)
	for wanted := first; err == nil && len(data) == wanted; {
		if !record.IsCompact(data) {
			return appendRange(ctx, store, key, data, -1)
		}
		end, known, damage := record.TokensEnd(data)
		switch {
		case damage != nil:
			return data, fmt.Errorf("%s: %w: %w", store.Locate(key), damage, blob.ErrCorrupt)
		case known && end <= len(data):
			return data[:end], nil
		}
		wanted = end
		data, err = appendRange(ctx, store, key, data, end-len(data))
	}
	return data, err
}

// appendRange reads so many bytes that follow, all of them for -1.
func appendRange(ctx context.Context, store blob.Store, key string, data []byte, n int) ([]byte, error) {
	rc, err := store.GetRange(ctx, key, int64(len(data)), int64(n))
	if err != nil {
		return data, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	buf := bytes.NewBuffer(data)
	buf.Grow(max(n, 0) + bytes.MinRead)
	_, err = buf.ReadFrom(rc)
	return buf.Bytes(), err
}

func decodeTrajectories(store blob.Store, key string, data []byte) ([]rl.Trajectory, error) {
	out, err := record.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", store.Locate(key), err, blob.ErrCorrupt)
	}
	return out, nil
}

// ReadTrajectoriesRef is ReadTrajectories with the Ref of what was read.
func ReadTrajectoriesRef(ctx context.Context, store blob.Store, key string) ([]rl.Trajectory, blob.Ref, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return nil, blob.Ref{}, err
	}
	out, err := decodeTrajectories(store, key, data)
	if err != nil {
		return nil, blob.Ref{}, err
	}
	return out, blob.RefOf(key, data), nil
}
