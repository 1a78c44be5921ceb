package history

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Lister is List for those who ask again and again: it reads an entry of the catalog
// anew only when the store says that it has changed. It is safe for concurrent use.
type Lister struct {
	store blob.Store

	mu    sync.Mutex
	known map[string]listed
}

type listed struct {
	info  blob.Info
	entry run.CatalogEntry
}

// NewLister lists the runs of a store.
func NewLister(store blob.Store) *Lister { return &Lister{store: store, known: map[string]listed{}} }

// settled is the age from which an entry with the same time and size counts as unchanged:
// stores state times in whole seconds, and clocks differ.
const settled = 10 * time.Second

// List returns the catalog's entries of all runs, by id.
func (l *Lister) List(ctx context.Context) ([]run.CatalogEntry, error) {
	infos, _, err := l.store.ListFolder(ctx, artifact.CatalogRoot)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	same := map[string]run.CatalogEntry{}
	for _, info := range infos {
		id := strings.TrimSuffix(path.Base(info.Key), ".json")
		if k, ok := l.known[id]; ok && k.info.Size == info.Size && k.info.ModTime.Equal(info.ModTime) {
			same[id] = k.entry
		}
	}
	l.mu.Unlock()
	out, err := list(ctx, l.store, func(id string) (run.CatalogEntry, bool) { e, ok := same[id]; return e, ok })
	if err != nil {
		return nil, err
	}
	byID := make(map[string]run.CatalogEntry, len(out))
	for _, e := range out {
		byID[e.RunID] = e
	}
	known := make(map[string]listed, len(infos))
	for _, info := range infos {
		id := strings.TrimSuffix(path.Base(info.Key), ".json")
		if e, ok := byID[id]; ok && time.Since(info.ModTime) > settled {
			known[id] = listed{info, e}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = known
	return out, nil
}
