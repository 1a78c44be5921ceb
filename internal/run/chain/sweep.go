package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// A run stores events, evaluations, amendments, checkpoints and the like beside its
// steps. The next manifest holds those that no earlier one does.

// sideFolders lists what lies beside the steps, by key. first includes what a run has
// before its first step.
func sideFolders(ctx context.Context, store blob.Store, layout artifact.Layout, first bool) ([]string, error) {
	folders := layout.Chain().SideFolders()
	if first {
		folders = append(folders, layout.Dir())
	}
	found := make([][]string, len(folders)+1)
	err := artifact.Each(ctx, len(found), func(ctx context.Context, i int) error {
		if i == len(folders) {
			_, names, err := store.ListFolder(ctx, layout.Checkpoints())
			for _, name := range names {
				if strings.HasPrefix(name, "step-") {
					found[i] = append(found[i], path.Join(layout.Checkpoints(), name, "manifest.json"))
				}
			}
			return err
		}
		infos, _, err := store.ListFolder(ctx, folders[i])
		for _, info := range infos {
			if !mutable(layout, info.Key) && !layout.Chain().Contains(info.Key) {
				found[i] = append(found[i], info.Key)
			}
		}
		return err
	})
	return slices.Concat(found...), err
}

// mutable reports whether an object of the run changes while the run is open.
func mutable(layout artifact.Layout, key string) bool {
	return key == layout.Head() || key == layout.Config().Newest() || key == layout.Summary() || key == layout.Metrics()
}

// sumUp makes the Refs of objects. Those that others of them name, and the store has
// not to be asked for, come from there: a worker that stored much has hashed it then.
// An object that was deleted meanwhile is left out.
func sumUp(ctx context.Context, store blob.Store, layout artifact.Layout, keys []string) ([]blob.Ref, error) {
	named := map[string]blob.Ref{}
	var documents, others []string
	for _, key := range keys {
		if path.Ext(key) == ".json" {
			documents = append(documents, key)
		} else {
			others = append(others, key)
		}
	}
	sums := make([]blob.Ref, len(documents))
	inside := make([][]blob.Ref, len(documents))
	err := artifact.Each(ctx, len(documents), func(ctx context.Context, i int) error {
		data, err := blob.ReadKey(ctx, store, documents[i])
		if err != nil {
			return ignoreGone(err)
		}
		sums[i] = blob.RefOf(documents[i], data)
		if holdsRefs(layout, documents[i]) {
			inside[i] = refsIn(layout, data)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, ref := range slices.Concat(inside...) {
		named[ref.Key] = ref
	}
	rest := make([]blob.Ref, len(others))
	err = artifact.Each(ctx, len(others), func(ctx context.Context, i int) (err error) {
		if ref, ok := named[others[i]]; ok {
			rest[i] = ref
			return nil
		}
		rest[i], err = hashObject(ctx, store, others[i])
		return ignoreGone(err)
	})
	all := slices.DeleteFunc(append(sums, rest...), blob.Ref.IsZero)
	slices.SortFunc(all, func(a, b blob.Ref) int { return strings.Compare(a.Key, b.Key) })
	return all, err
}

func ignoreGone(err error) error {
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}

// hashObject reads an object through and returns its Ref. Errors: blob.ErrNotExist.
func hashObject(ctx context.Context, store blob.Store, key string) (blob.Ref, error) {
	rc, err := store.Get(ctx, key)
	if err != nil {
		return blob.Ref{}, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	sum := sha256.New()
	n, err := io.Copy(sum, rc)
	if err != nil {
		return blob.Ref{}, err
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n}, nil
}
