package history

import (
	"context"
	"errors"
	"slices"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// RunIDs are the ids of the runs of a store, in order.
func RunIDs(ctx context.Context, store blob.Store) ([]string, error) {
	ids, _, err := artifact.RunIDs(ctx, store)
	return ids, err
}

// folders is how many runs are read from their folders at once. The search for the
// newest step of each makes some 24 requests at once.
const folders = 8

// List is what the catalog says of all runs of a store, by id, and of those that were
// refused. A run without an entry is read from its folder.
func List(ctx context.Context, store blob.Store) ([]run.CatalogEntry, error) {
	return list(ctx, store, func(string) (run.CatalogEntry, bool) { return run.CatalogEntry{}, false })
}

// list is List with entries that need not be read.
func list(ctx context.Context, store blob.Store, known func(id string) (run.CatalogEntry, bool)) ([]run.CatalogEntry, error) {
	ids, cataloged, err := artifact.RunIDs(ctx, store)
	if err != nil {
		return nil, err
	}
	folderOf := func(id string) bool { _, ok := slices.BinarySearch(ids, id); return ok }
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(ids, cataloged))))
	found := make([]*run.CatalogEntry, len(all))
	err = artifact.Each(ctx, len(all), func(ctx context.Context, i int) (err error) {
		if _, ok := slices.BinarySearch(cataloged, all[i]); !ok {
			return nil
		}
		if e, ok := known(all[i]); ok {
			found[i] = &e
		} else {
			found[i], err = readEntry(ctx, store, all[i])
		}
		if found[i] != nil && !found[i].Refused && !folderOf(all[i]) {
			found[i] = nil // of a run that is gone
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = artifact.EachOf(ctx, len(all), folders, func(ctx context.Context, i int) (err error) {
		if found[i] == nil && folderOf(all[i]) {
			found[i], err = anyEntry(ctx, store, all[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]run.CatalogEntry, 0, len(found))
	for _, e := range found {
		if e != nil {
			out = append(out, *e)
		}
	}
	return out, nil
}

// anyEntry is makeEntry, and says of a damaged run that it is one: it must not hide the
// others.
func anyEntry(ctx context.Context, store blob.Store, id string) (*run.CatalogEntry, error) {
	e, err := makeEntry(ctx, store, id)
	if err != nil && ctx.Err() == nil && !errors.Is(err, blob.ErrUnavailable) {
		return &run.CatalogEntry{RunID: id, State: run.StateDamaged, Reason: err.Error()}, nil
	}
	return e, err
}

// Index writes the catalog anew from the folders of the runs and returns the number of
// entries. It removes the entries of runs that are gone and keeps the entries of refused
// runs. A run that is active meanwhile corrects its entry with its next step.
func Index(ctx context.Context, store blob.Store) (int, error) {
	ids, cataloged, err := artifact.RunIDs(ctx, store)
	if err != nil {
		return 0, err
	}
	written := make([]bool, len(ids))
	err = artifact.EachOf(ctx, len(ids), folders, func(ctx context.Context, i int) error {
		e, err := makeEntry(ctx, store, ids[i])
		if err != nil || e == nil {
			return err
		}
		written[i] = true
		return run.PutEntry(ctx, store, *e, blob.Always)
	})
	if err != nil {
		return 0, err
	}
	num := 0
	for i, id := range ids {
		if written[i] {
			num++
			cataloged = slices.DeleteFunc(cataloged, func(c string) bool { return c == id })
		}
	}
	for _, gone := range cataloged {
		if e, err := readEntry(ctx, store, gone); err != nil {
			return num, err
		} else if e != nil && e.Refused {
			num++
			continue
		}
		if err := store.Delete(ctx, artifact.Layout{RunID: gone}.Catalog()); err != nil {
			return num, err
		}
	}
	return num, nil
}

// Entry is what the catalog says of the run. A step that the plan does not have is no step of
// the run: readers go from the first to the newest one.
func (r *Run) Entry(ctx context.Context) (run.CatalogEntry, error) {
	e, err := readEntry(ctx, r.store, r.ID())
	if e != nil && (e.Step < 0 || e.Step > r.Plan.NumSteps()) { // it is damaged, or the plan was amended since
		e = nil
	}
	if e == nil && err == nil {
		e, err = makeEntry(ctx, r.store, r.ID())
	}
	if e == nil {
		return run.CatalogEntry{RunID: r.ID()}, err
	}
	return *e, err
}

// readEntry reads an entry of the catalog, nil for none and for one that is damaged or of
// another format.
func readEntry(ctx context.Context, store blob.Store, id string) (*run.CatalogEntry, error) {
	e, ok, err := artifact.Lookup[run.CatalogEntry](ctx, store, artifact.Layout{RunID: id}.Catalog())
	if errors.Is(err, blob.ErrCorrupt) || err == nil && (!ok || e.RunID != id || e.Format != run.Format) {
		return nil, nil
	}
	return &e, err
}

// makeEntry makes the entry of a run from its folder; nil when no run is there, or
// none was opened to its end.
func makeEntry(ctx context.Context, store blob.Store, id string) (*run.CatalogEntry, error) {
	e, plan, err := run.EntryOfPlan(ctx, store, id)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Run{Plan: plan, store: store, layout: artifact.Layout{RunID: id}}
	var newest []run.StepRecord
	var events []run.Event
	var summary run.Summary
	var ended bool
	reads := []func(context.Context) error{
		func(ctx context.Context) (err error) { newest, err = r.newestRecord(ctx); return err },
		func(ctx context.Context) (err error) { events, err = r.stateEvents(ctx); return err },
		func(ctx context.Context) (err error) { summary, ended, err = r.Summary(ctx); return err },
	}
	if err := artifact.Each(ctx, len(reads), func(ctx context.Context, i int) error { return reads[i](ctx) }); err != nil {
		return nil, err
	}
	for _, record := range newest { // before the events: of two facts at one time the event came later
		e.AddStep(record)
	}
	for _, ev := range events {
		e.AddEvent(ev)
	}
	if ended {
		e.AddSummary(summary)
	}
	return &e, nil
}

// newestRecord is the record of the newest step, or nothing.
func (r *Run) newestRecord(ctx context.Context) ([]run.StepRecord, error) {
	step, err := run.NewestStep(ctx, r.store, r.Plan)
	if err != nil || step == 0 {
		return nil, err
	}
	return artifact.Gather[run.StepRecord](ctx, r.store, []string{r.layout.Step(step).Log()})
}
