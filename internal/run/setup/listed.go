package setup

import (
	"context"
	"errors"
	"time"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// listRun enters a run that was opened into the list of runs. An entry of an earlier
// attempt stays, since the run may have progressed since; an entry of a refusal of the same
// id is replaced.
func listRun(ctx context.Context, store blob.Store, entry run.CatalogEntry) error {
	err := run.PutEntry(ctx, store, entry, blob.IfAbsent)
	if !errors.Is(err, blob.ErrExists) {
		return err
	}
	before, ok, err := artifact.Lookup[run.CatalogEntry](ctx, store, artifact.Layout{RunID: entry.RunID}.Catalog())
	switch {
	case errors.Is(err, blob.ErrCorrupt): // the next step writes it anew
		return nil
	case err != nil:
		return err
	case ok && !before.Refused:
		return nil
	}
	return run.PutEntry(ctx, store, entry, blob.Always)
}

// listRefusal enters a run that was refused for good into the list of runs, if no run has
// its id, so that a user who looks for it finds the reason. It is best effort: the refusal
// itself states the same reason.
func listRefusal(ctx context.Context, store blob.Store, runID string, why error, at time.Time) {
	kind := fault.Of(why)
	if kind == "" || kind == fault.RunExists || artifact.CheckRunID(runID) != nil {
		return
	}
	layout := artifact.Layout{RunID: runID}
	if _, err := store.Stat(ctx, layout.Plan()); !errors.Is(err, blob.ErrNotExist) {
		return
	}
	if before, ok, err := artifact.Lookup[run.CatalogEntry](ctx, store, layout.Catalog()); err != nil || ok && !before.Refused {
		return
	}
	entry := run.CatalogEntry{RunID: runID, State: run.StateFailed, Reason: why.Error(), Refused: true, Started: at, Updated: at}
	_ = run.PutEntry(ctx, store, entry, blob.Always) // see above
}
