package chain

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Retired is a note of what a run deletes because nothing keeps it any more. It is
// written before anything is deleted. The next manifest holds it, so that a deletion
// without a note shows.
type Retired struct {
	// Cursor is the cursor of the save after which the deletion came.
	Cursor int `json:"cursor"`
	// Keys are objects, and folders where they end with a slash.
	Keys []string `json:"keys"`
}

// Retire notes what is about to be deleted.
func Retire(ctx context.Context, store blob.Store, layout artifact.Layout, r Retired) error {
	if len(r.Keys) == 0 {
		return nil
	}
	slices.Sort(r.Keys)
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = blob.PutBytes(ctx, store, layout.Chain().Retired(r.Cursor, blob.RefOf("", data).SHA256), data, blob.IfAbsent)
	if errors.Is(err, blob.ErrExists) {
		return nil // by an attempt that died
	}
	return err
}

// notes are the keys and folders that notes name.
type notes struct {
	keys    map[string]bool
	folders []string
}

// readNotes reads the notes of a run that are held by its chain and those that are
// younger than its last manifest. One that was changed since is none.
func readNotes(ctx context.Context, store blob.Store, layout artifact.Layout, c *Chain) (notes, error) {
	out := notes{keys: map[string]bool{}}
	held := map[string]blob.Ref{}
	for _, e := range c.Entries {
		if e.Damage != nil {
			continue
		}
		for _, ref := range e.Manifest.Holds {
			held[ref.Key] = ref
		}
	}
	infos, _, err := store.ListFolder(ctx, layout.Chain().RetiredDir())
	if err != nil {
		return out, err
	}
	all := make([]Retired, len(infos))
	err = artifact.Each(ctx, len(infos), func(ctx context.Context, i int) error {
		data, err := blob.ReadKey(ctx, store, infos[i].Key)
		if err != nil {
			return ignoreGone(err)
		}
		if want, ok := held[infos[i].Key]; ok && want != blob.RefOf(infos[i].Key, data) {
			return nil // the check of objects names it
		}
		if json.Unmarshal(data, &all[i]) != nil {
			all[i] = Retired{}
		}
		return nil
	})
	for _, r := range all {
		for _, key := range r.Keys {
			if strings.HasSuffix(key, "/") {
				out.folders = append(out.folders, key)
			} else {
				out.keys[key] = true
			}
		}
	}
	return out, err
}

// cover reports whether a note names the object of a key.
func (n notes) cover(key string) bool {
	return n.keys[key] || slices.ContainsFunc(n.folders, func(folder string) bool { return strings.HasPrefix(key, folder) })
}
