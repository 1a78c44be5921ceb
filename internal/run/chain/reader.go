package chain

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Entry is a manifest as it lies in the store.
type Entry struct {
	// Ref is the key and the true sum of the stored bytes.
	Ref      blob.Ref
	Manifest Manifest
	Facts    Facts
	// Damage is why the bytes are no manifest of that key; nil when they are.
	Damage error
}

// Chain is all manifests of a run, in order: the opening, the steps, the closing.
type Chain struct {
	RunID   string
	Entries []Entry
}

// Load reads the manifests of a run. One that cannot be read has its Damage.
func Load(ctx context.Context, store blob.Store, runID string) (*Chain, error) {
	layout := artifact.Layout{RunID: runID}
	_, names, err := store.ListFolder(ctx, layout.Steps())
	if err != nil {
		return nil, fmt.Errorf("chain of run %s: %w", runID, err)
	}
	keys := []string{layout.Opening()}
	for _, name := range names {
		if step, err := strconv.Atoi(name); err == nil {
			keys = append(keys, layout.Manifest(step))
		}
	}
	keys = append(keys, layout.Closing())
	found := make([]*Entry, len(keys))
	err = artifact.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		e, err := readEntry(ctx, store, keys[i])
		if errors.Is(err, blob.ErrNotExist) {
			return nil
		}
		if errors.Is(err, blob.ErrCorrupt) {
			e.Damage, err = err, nil
		}
		found[i] = &e
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("chain of run %s: %w", runID, err)
	}
	out := &Chain{RunID: runID}
	for _, e := range found {
		if e != nil {
			out.Entries = append(out.Entries, *e)
		}
	}
	return out, nil
}

// Head is the end of the chain; zero for a run without one.
func (c *Chain) Head() Head {
	if len(c.Entries) == 0 {
		return Head{}
	}
	last := c.Entries[len(c.Entries)-1]
	return Head{Link: last.Manifest.Link, Seal: last.Ref.SHA256}
}

// readEntry reads the manifest under a key. With blob.ErrCorrupt the entry has its
// Ref. Errors: blob.ErrNotExist, blob.ErrCorrupt.
func readEntry(ctx context.Context, store blob.Store, key string) (Entry, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return Entry{Ref: blob.Ref{Key: key}}, err
	}
	return entryOf(key, data)
}

func entryOf(key string, data []byte) (Entry, error) {
	e := Entry{Ref: blob.RefOf(key, data)}
	var err error
	if e.Manifest, err = decodeManifest(data); err != nil {
		return e, err
	}
	e.Facts, err = e.Manifest.Decode()
	return e, err
}
