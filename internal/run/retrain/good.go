package retrain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// ReadGood returns the last good policy of a schedule; ok is false when there is none yet.
func ReadGood(ctx context.Context, store blob.Store, id string) (good GoodPolicy, ok bool, err error) {
	good, ref, err := readGood(ctx, store, artifact.Schedule{ID: id})
	return good, !ref.IsZero(), err
}

// readGood also returns the Ref of the pointer, zero when there is none.
func readGood(ctx context.Context, store blob.Store, s artifact.Schedule) (good GoodPolicy, ref blob.Ref, err error) {
	data, err := blob.ReadKey(ctx, store, s.Good())
	if errors.Is(err, blob.ErrNotExist) {
		return good, blob.Ref{}, nil
	}
	if err != nil {
		return good, blob.Ref{}, err
	}
	if err := json.Unmarshal(data, &good); err != nil {
		return good, blob.Ref{}, fmt.Errorf("decode %s: %w: %w", store.Locate(s.Good()), err, blob.ErrCorrupt)
	}
	return good, blob.RefOf(s.Good(), data), nil
}

// GoodPolicies are the policies of a run that a schedule starts its next
// re-training from.
func GoodPolicies(ctx context.Context, store blob.Store, runID string) ([]int64, error) {
	infos, err := store.List(ctx, artifact.ScheduleRoot+"/")
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, info := range infos {
		schedule := artifact.Schedule{ID: path.Base(path.Dir(info.Key))}
		if info.Key != schedule.Good() {
			continue
		}
		good, ref, err := readGood(ctx, store, schedule)
		if err != nil {
			return nil, err
		}
		if !ref.IsZero() && good.RunID == runID {
			out = append(out, good.Policy.Version)
		}
	}
	return out, nil
}
