package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Draft is what a manifest is made of.
type Draft struct {
	Facts Facts
	// Keys are objects of the step. The writer finds objects beside the steps without them.
	Keys   []string
	MadeBy []Maker
	Fork   blob.Ref
}

// Writer adds manifests to the chains of runs. It remembers what the manifests of a
// run hold beside its steps; a process that has not written the last one reads them all
// once. The zero value is ready.
type Writer struct {
	mu   sync.Mutex // guards runs alone: runs do not wait for one another
	runs map[string]memory
}

// memory is what the chain of a run holds beside its steps, up to a manifest. It does
// not change.
type memory struct {
	last Entry
	side map[string]bool
}

// maxRemembered bounds the runs of which a Writer knows the chain. A run that failed is
// never closed.
const maxRemembered = 64

// Add writes the manifest of a step or of the end, after the one of the step before.
// A run without a manifest gets its opening first. A manifest that is there stays, and
// is returned.
func (w *Writer) Add(ctx context.Context, store blob.Store, d Draft, opening func(context.Context) (Draft, error)) (Entry, error) {
	layout := artifact.Layout{RunID: d.Facts.Run}
	after, err := w.add(ctx, store, layout, d, opening)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || d.Facts.Kind == Closing || len(w.runs) >= maxRemembered {
		delete(w.runs, layout.RunID)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("manifest of %s %d: %w", d.Facts.Kind, d.Facts.Step, err)
	}
	switch {
	case d.Facts.Kind == Closing:
	case w.runs == nil || len(w.runs) >= maxRemembered:
		w.runs = map[string]memory{layout.RunID: after}
	default:
		w.runs[layout.RunID] = after
	}
	return after.last, nil
}

func (w *Writer) add(ctx context.Context, store blob.Store, layout artifact.Layout, d Draft, opening func(context.Context) (Draft, error)) (memory, error) {
	before, err := w.recall(ctx, store, layout, d.Facts)
	if err != nil {
		return memory{}, err
	}
	if before.last.Ref.IsZero() {
		first, err := opening(ctx)
		if err != nil {
			return memory{}, err
		}
		if before, err = put(ctx, store, layout, first, before); err != nil {
			return memory{}, err
		}
	}
	return put(ctx, store, layout, d, before)
}

// recall finds the manifest before that of the given facts, and what the chain holds
// up to there.
func (w *Writer) recall(ctx context.Context, store blob.Store, layout artifact.Layout, f Facts) (memory, error) {
	w.mu.Lock()
	known, ok := w.runs[layout.RunID]
	w.mu.Unlock()
	if ok && (known.last.Facts.Step == f.Step-1 || f.Kind == Closing && known.last.Facts.Step == f.Step) {
		newest, err := readEntry(ctx, store, known.last.Ref.Key)
		if err == nil && newest.Ref == known.last.Ref {
			return known, nil
		}
		if err != nil && !errors.Is(err, blob.ErrNotExist) && !errors.Is(err, blob.ErrCorrupt) {
			return memory{}, err
		}
	}
	chain, err := Load(ctx, store, layout.RunID)
	if err != nil {
		return memory{}, err
	}
	var out memory
	for _, e := range chain.Entries {
		if e.Damage != nil || e.Facts.Kind == Closing || f.Kind == Step && e.Facts.Kind == Step && e.Facts.Step >= f.Step {
			continue
		}
		out = out.after(layout, e)
	}
	return out, nil
}

// after is the memory with one manifest more.
func (m memory) after(layout artifact.Layout, e Entry) memory {
	out := memory{last: e, side: m.side}
	for _, ref := range e.Manifest.Holds {
		if _, ofStep := artifact.StepOf(layout, ref.Key); ofStep || m.side[ref.Key] {
			continue
		}
		if len(out.side) == len(m.side) {
			out.side = maps.Clone(m.side)
		}
		if out.side == nil {
			out.side = map[string]bool{}
		}
		out.side[ref.Key] = true
	}
	return out
}

// put writes a manifest after another one and returns what the chain holds then.
func put(ctx context.Context, store blob.Store, layout artifact.Layout, d Draft, before memory) (memory, error) {
	m := Manifest{Format: Format, Previous: before.last.Ref, Fork: d.Fork, MadeBy: d.MadeBy}
	d.Facts.PolicyIn = before.last.Facts.PolicyOut
	var err error
	if m.Facts, err = json.Marshal(d.Facts); err != nil {
		return memory{}, err
	}
	if m.Link, err = LinkOf(before.last.Manifest.Link, m.Facts); err != nil {
		return memory{}, err
	}
	side, err := sideFolders(ctx, store, layout, d.Facts.Kind == Opening)
	if err != nil {
		return memory{}, err
	}
	side = slices.DeleteFunc(side, func(key string) bool { return before.side[key] })
	if m.Holds, err = sumUp(ctx, store, layout, append(side, d.Keys...)); err != nil {
		return memory{}, err
	}
	if d.Facts.Kind == Closing {
		if m.State, err = sumUp(ctx, store, layout, []string{layout.Head(), layout.Config().Newest()}); err != nil {
			return memory{}, err
		}
	}
	entry, err := putOnce(ctx, store, keyOf(layout, d.Facts), m)
	if err != nil {
		return memory{}, err
	}
	return before.after(layout, entry), nil
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
		return layout.Chain().Opening()
	case Closing:
		return layout.Chain().Closing()
	default:
		return layout.Step(f.Step).Manifest()
	}
}
