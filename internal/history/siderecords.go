package history

import (
	"context"
	"fmt"
	"slices"

	"temper/internal/blob"
	"temper/internal/run/artifact"
	"temper/internal/run/record"
)

// Times returns the times of a step's trajectories, in no order; none if none were
// recorded. It leaves out damaged records: nothing depends on them.
func (o Rollouts) Times(ctx context.Context, step int) ([]record.Times, error) {
	return readRecords(ctx, o.run.store, o.run.layout.Step(step).TimesFolder(), record.DecodeTimes)
}

// OutputsOf returns the whole outputs of the calls of a trajectory, if the run keeps them.
func (o Rollouts) OutputsOf(ctx context.Context, step int, problemID string, rollout int) ([]record.Output, error) {
	return readRecords(ctx, o.run.store, o.run.layout.Step(step).OutputsFolder(), func(data []byte) ([]record.Output, error) {
		list, err := record.DecodeOutputs(data) // those of other trajectories are dropped at once: all of a step may be gigabytes
		return slices.DeleteFunc(list, func(one record.Output) bool { return one.Problem != problemID || one.Rollout != rollout }), err
	})
}

// TokenStats returns the trainer's statistics of the sampled tokens of a trajectory. ok is
// false if they are not recorded or damaged: nothing depends on them.
func (o Rollouts) TokenStats(ctx context.Context, step int, problemID string, rollout int) (s record.TokenStats, ok bool, err error) {
	data, err := blob.ReadKey(ctx, o.run.store, o.run.layout.Step(step).Tokens(problemID))
	if blob.IsDamage(err) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	list, err := record.DecodeTokens(data)
	i := slices.IndexFunc(list, func(s record.TokenStats) bool { return s.Rollout == rollout })
	if err != nil || i < 0 {
		return s, false, nil //nolint:nilerr // see above
	}
	return list[i], true, nil
}

// readRecords reads all objects of a folder and skips damaged and missing ones.
func readRecords[T any](ctx context.Context, store blob.Store, folder string, decode func([]byte) ([]T, error)) ([]T, error) {
	infos, _, err := store.ListFolder(ctx, folder)
	if err != nil {
		return nil, err
	}
	parts := make([][]T, len(infos))
	err = artifact.Each(ctx, len(infos), func(ctx context.Context, i int) error {
		data, err := blob.ReadKey(ctx, store, infos[i].Key)
		if blob.IsDamage(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", store.Locate(infos[i].Key), err)
		}
		if list, err := decode(data); err == nil {
			parts[i] = list
		}
		return nil
	})
	var out []T
	for _, part := range parts {
		out = append(out, part...)
	}
	return out, err
}
