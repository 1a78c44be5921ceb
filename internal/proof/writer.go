package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// Draft is what a manifest is made of.
type Draft struct {
	Facts Facts
	// Keys are objects of the step. What lies beside the steps is found without them.
	Keys   []string
	MadeBy []Maker
	Fork   blob.Ref
}

// Writer adds manifests to the chains of runs. It remembers what the manifests of a
// run hold; a process that has not written the last one reads them all once. The zero
// value is ready.
type Writer struct {
	mu   sync.Mutex
	runs map[string]*memory
}

// memory is what the chain of a run holds up to a manifest.
type memory struct {
	last  Entry
	holds map[string]bool
}

// Add writes the manifest of a step or of the end, after the one of the step before.
// A run without a manifest gets its opening first. A manifest that is there stays, and
// is returned.
func (w *Writer) Add(ctx context.Context, store blob.Store, d Draft, opening func(context.Context) (Draft, error)) (Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	layout := artifact.Layout{RunID: d.Facts.Run}
	out, err := w.add(ctx, store, layout, d, opening)
	if err != nil {
		delete(w.runs, layout.RunID)
		return out, fmt.Errorf("manifest of %s %d: %w", d.Facts.Kind, d.Facts.Step, err)
	}
	return out, nil
}

func (w *Writer) add(ctx context.Context, store blob.Store, layout artifact.Layout, d Draft, opening func(context.Context) (Draft, error)) (Entry, error) {
	before, err := w.recall(ctx, store, layout, d.Facts)
	if err != nil {
		return Entry{}, err
	}
	if before.last.Ref.IsZero() {
		first, err := opening(ctx)
		if err != nil {
			return Entry{}, err
		}
		if before, err = put(ctx, store, layout, first, before); err != nil {
			return Entry{}, err
		}
	}
	after, err := put(ctx, store, layout, d, before)
	if err != nil {
		return Entry{}, err
	}
	if w.runs == nil {
		w.runs = map[string]*memory{}
	}
	w.runs[layout.RunID] = after
	if d.Facts.Kind == Closing {
		delete(w.runs, layout.RunID)
	}
	return after.last, nil
}

// recall finds the manifest before that of the given facts, and what the chain holds
// up to there.
func (w *Writer) recall(ctx context.Context, store blob.Store, layout artifact.Layout, f Facts) (*memory, error) {
	known := w.runs[layout.RunID]
	if known != nil && (known.last.Facts.Step == f.Step-1 || f.Kind == Closing && known.last.Facts.Step == f.Step) {
		newest, err := readEntry(ctx, store, known.last.Ref.Key)
		if err == nil && newest.Ref == known.last.Ref {
			return known, nil
		}
		if err != nil && !errors.Is(err, blob.ErrNotExist) && !errors.Is(err, blob.ErrCorrupt) {
			return nil, err
		}
	}
	chain, err := Load(ctx, store, layout.RunID)
	if err != nil {
		return nil, err
	}
	out := &memory{holds: map[string]bool{}}
	for _, e := range chain.Entries {
		if e.Damage != nil || e.Facts.Kind == Closing || f.Kind == Step && e.Facts.Kind == Step && e.Facts.Step >= f.Step {
			continue
		}
		out.last = e
		for _, ref := range e.Manifest.Holds {
			out.holds[ref.Key] = true
		}
	}
	return out, nil
}

// put writes a manifest after another one and returns what the chain holds then.
func put(ctx context.Context, store blob.Store, layout artifact.Layout, d Draft, before *memory) (*memory, error) {
	m := Manifest{Format: Format, Previous: before.last.Ref, Fork: d.Fork, MadeBy: d.MadeBy}
	d.Facts.PolicyIn = before.last.Facts.PolicyOut
	var err error
	if m.Facts, err = json.Marshal(d.Facts); err != nil {
		return nil, err
	}
	if m.Link, err = LinkOf(before.last.Manifest.Link, m.Facts); err != nil {
		return nil, err
	}
	side, err := sideFolders(ctx, store, layout, d.Facts.Kind == Opening)
	if err != nil {
		return nil, err
	}
	side = slices.DeleteFunc(side, func(key string) bool { return before.holds[key] })
	if m.Holds, err = sumUp(ctx, store, layout, append(side, d.Keys...)); err != nil {
		return nil, err
	}
	if d.Facts.Kind == Closing {
		if m.State, err = sumUp(ctx, store, layout, []string{layout.Head(), layout.NewestConfig()}); err != nil {
			return nil, err
		}
	}
	entry, err := putOnce(ctx, store, keyOf(layout, d.Facts), m)
	if err != nil {
		return nil, err
	}
	after := &memory{last: entry, holds: before.holds}
	for _, ref := range entry.Manifest.Holds {
		after.holds[ref.Key] = true
	}
	return after, nil
}

// putOnce stores a manifest unless one is there, and returns what is there.
func putOnce(ctx context.Context, store blob.Store, key string, m Manifest) (Entry, error) {
	data, err := m.encode()
	if err != nil {
		return Entry{}, err
	}
	_, err = blob.PutBytes(ctx, store, key, data, blob.IfAbsent)
	if errors.Is(err, blob.ErrExists) {
		return readEntry(ctx, store, key)
	}
	if err != nil {
		return Entry{}, err
	}
	return entryOf(key, data)
}

func keyOf(layout artifact.Layout, f Facts) string {
	switch f.Kind {
	case Opening:
		return layout.Opening()
	case Closing:
		return layout.Closing()
	default:
		return layout.Manifest(f.Step)
	}
}
