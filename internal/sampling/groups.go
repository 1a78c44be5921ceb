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

// writeGroup stores a group as JSON lines unless another attempt was faster, and
// returns the one that is stored.
func writeGroup(ctx context.Context, store blob.Store, key string, g rl.Group) (rl.Group, error) {
	data, err := trajectoryLines(g.Trajectories)
	if err != nil {
		return g, fault.OfEncoding(fmt.Errorf("encode group %s: %w", g.Problem.ID, err))
	}
	_, err = blob.PutBytes(ctx, store, key, data, blob.IfAbsent)
	if errors.Is(err, blob.ErrExists) {
		stored, _, err := lookupGroup(ctx, store, key, g.Problem)
		return stored, err
	}
	return g, err
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
func lookupGroup(ctx context.Context, store blob.Store, key string, p rl.Problem) (g rl.Group, ok bool, err error) {
	g.Problem = p
	g.Trajectories, ok, err = lookupTrajectories(ctx, store, key)
	return g, ok, err
}

// lookupTrajectories reads what trajectoryLines wrote; ok is false when nothing is stored.
func lookupTrajectories(ctx context.Context, store blob.Store, key string) (out []rl.Trajectory, ok bool, err error) {
	out, err = run.ReadTrajectories(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, false, nil
	}
	return out, err == nil, err
}
