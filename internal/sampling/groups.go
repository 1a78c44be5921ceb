package sampling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
)

// storedGroup is a group with the Ref of its trajectories.
type storedGroup struct {
	rl.Group
	ref blob.Ref
}

// writeGroup stores a group as JSON lines unless another attempt was faster, and
// returns the one that is stored. One that nobody can read is replaced.
func (s *sampler) writeGroup(ctx context.Context, key string, g rl.Group) (storedGroup, error) {
	data, err := trajectoryLines(g.Trajectories)
	if err != nil {
		return storedGroup{}, fault.OfEncoding(fmt.Errorf("encode group %s: %w", g.Problem.ID, err))
	}
	ref, err := blob.PutBytes(ctx, s.store, key, data, blob.IfAbsent)
	if !errors.Is(err, blob.ErrExists) {
		return storedGroup{g, ref}, err
	}
	stored, _, err := lookupGroup(ctx, s.store, key, g.Problem)
	if !errors.Is(err, blob.ErrCorrupt) {
		return stored, err
	}
	if err := blob.Restore(ctx, s.store, key, data); err != nil {
		return storedGroup{}, err
	}
	return storedGroup{g, blob.RefOf(key, data)}, run.LogEvent(ctx, s.store, run.Event{
		Run: s.run.Ref, Time: s.now(), Kind: run.EventRepair, Text: key + " was damaged; sampled again",
	})
}

func trajectoryLines(ts []rl.Trajectory) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range ts {
		if err := enc.Encode(&ts[i]); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// lookupGroup reads the group of a problem; ok is false when none is stored.
func lookupGroup(ctx context.Context, store blob.Store, key string, p rl.Problem) (g storedGroup, ok bool, err error) {
	g.Problem = p
	g.Trajectories, g.ref, ok, err = lookupTrajectories(ctx, store, key)
	return g, ok, err
}

// lookupTrajectories reads what trajectoryLines wrote; ok is false when nothing is stored.
func lookupTrajectories(ctx context.Context, store blob.Store, key string) (out []rl.Trajectory, ref blob.Ref, ok bool, err error) {
	out, ref, err = run.ReadTrajectoriesRef(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, ref, false, nil
	}
	return out, ref, err == nil, err
}
