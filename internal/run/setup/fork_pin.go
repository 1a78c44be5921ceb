package setup

import (
	"context"
	"errors"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// pinReason is the reason of the pin on a checkpoint that a fork will begin with.
func pinReason(runID string) string { return "run " + runID + " begins with it" }

// pin keeps the checkpoint for the fork, unless somebody has pinned it.
func (f *fork) pin(ctx context.Context, store blob.Store, runID string) error {
	layout, cursor := artifact.Layout{RunID: f.parent.RunID}, f.parent.SFTSteps+f.from.Step
	pins, err := checkpoint.Pins(ctx, store, layout.Checkpoints())
	if _, pinned := pins[cursor]; pinned || err != nil {
		return err
	}
	return checkpoint.Pin(ctx, store, layout.Checkpoints(), cursor, pinReason(runID))
}

// unpin takes back what pin did.
func (f *fork) unpin(ctx context.Context, store blob.Store, runID string) error {
	return removePin(ctx, store, f.parent.RunID, f.parent.SFTSteps+f.from.Step, runID)
}

// unpinParent takes back what pin did for a fork that has its own checkpoint.
func unpinParent(ctx context.Context, store blob.Store, fork run.Plan) error {
	return removePin(ctx, store, fork.Fork.RunID, fork.SFTSteps+fork.Fork.Step, fork.RunID)
}

// removePin removes the pin on a checkpoint of the parent, if the fork made it.
func removePin(ctx context.Context, store blob.Store, parent string, cursor int, runID string) error {
	dir := artifact.Layout{RunID: parent}.Checkpoints()
	pins, err := checkpoint.Pins(ctx, store, dir)
	if err != nil || pins[cursor].Reason != pinReason(runID) {
		return err
	}
	return checkpoint.Unpin(ctx, store, dir, cursor)
}

// maxAttempts bounds how often a checkpoint is chosen. One may be deleted between
// the choice and the pin.
const maxAttempts = 5

// findAndPin finds the checkpoint and pins it until the fork has a copy: a parent
// that goes on deletes old ones. When one is deleted before the pin, the choice is
// made again; a step that was named is then refused with the steps that are left.
func findAndPin(ctx context.Context, store blob.Store, in run.Input) (f fork, err error) {
	for range maxAttempts {
		if f, err = findFork(ctx, store, in); err != nil {
			return f, err
		}
		if err = f.pin(ctx, store, in.RunID); !errors.Is(err, blob.ErrNotExist) {
			return f, err
		}
	}
	return f, err
}
