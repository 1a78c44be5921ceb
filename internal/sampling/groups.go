package sampling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/record"
)

// storedGroup is a group with the Ref of its trajectories.
type storedGroup struct {
	rl.Group
	ref blob.Ref
}

// groupWriter stores the groups of a run.
type groupWriter struct {
	run   *run.Loaded
	store blob.Store
	now   func() time.Time
}

// writeGroup stores a group of a step: as lines for people, or as a compact record
// where lines would be large. packed are its trajectories.
func (w groupWriter) writeGroup(ctx context.Context, key string, g rl.Group, packed []record.Packed) (storedGroup, error) {
	tokens := 0
	for i := range packed {
		tokens += packed[i].Tokens()
	}
	var data []byte
	var err error
	if record.IsLarge(tokens) {
		data, err = record.Compact(packed)
	} else {
		w.addTexts(g.Trajectories)
		data, err = record.Lines(g.Trajectories)
	}
	return w.putGroup(ctx, key, g, data, err)
}

// addTexts decodes the responses: the runner and packed trajectories leave it to those
// who write them down for people.
func (w groupWriter) addTexts(ts []rl.Trajectory) {
	tok := w.run.Format.Tokenizer()
	for i := range ts {
		ts[i].Text = tok.Decode(ts[i].Tokens[ts[i].PromptTokens:])
	}
}

// writeLines stores a group for the time of an evaluation.
func (w groupWriter) writeLines(ctx context.Context, key string, g rl.Group) (storedGroup, error) {
	w.addTexts(g.Trajectories)
	data, err := record.Lines(g.Trajectories)
	return w.putGroup(ctx, key, g, data, err)
}

// putGroup stores an encoded group unless another attempt has stored one, and returns the
// stored group. It replaces a stored group that cannot be read. err is the error of the
// encoding.
func (w groupWriter) putGroup(ctx context.Context, key string, g rl.Group, data []byte, err error) (storedGroup, error) {
	if err != nil {
		return storedGroup{}, fault.OfEncoding(fmt.Errorf("encode group %s: %w", g.Problem.ID, err))
	}
	ref, err := blob.PutBytes(ctx, w.store, key, data, blob.IfAbsent)
	if !errors.Is(err, blob.ErrExists) {
		return storedGroup{g, ref}, err
	}
	stored, _, err := lookupGroup(ctx, w.store, key, g.Problem)
	if !errors.Is(err, blob.ErrCorrupt) {
		return stored, err
	}
	if err := blob.Restore(ctx, w.store, key, data); err != nil {
		return storedGroup{}, err
	}
	return storedGroup{g, blob.RefOf(key, data)}, run.LogEvent(ctx, w.store, run.Event{
		Run: w.run.Ref, Time: w.now(), Kind: run.EventRepair, Text: key + " was damaged; sampled again",
	})
}

// lookupGroup reads the group of a problem; ok is false when none is stored.
func lookupGroup(ctx context.Context, store blob.Store, key string, p rl.Problem) (g storedGroup, ok bool, err error) {
	g.Problem = p
	g.Trajectories, g.ref, ok, err = lookupTrajectories(ctx, store, key)
	return g, ok, err
}

// lookupTrajectories reads stored trajectories; ok is false when nothing is stored.
func lookupTrajectories(ctx context.Context, store blob.Store, key string) (out []rl.Trajectory, ref blob.Ref, ok bool, err error) {
	out, ref, err = run.ReadTrajectoriesRef(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, ref, false, nil
	}
	return out, ref, err == nil, err
}
