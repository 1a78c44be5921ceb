package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
)

// Adopt makes the checkpoint of the manifest src also a checkpoint of dstPrefix, under the
// same step, and returns its manifest there. Both manifests name the same shards, and either
// may be pruned. Adopt copies a shard only when a garbage collection that never ends might
// delete it. It is idempotent; another checkpoint of that step at dstPrefix is
// blob.ErrExists. Errors: ErrCorrupt, ErrNewer, blob.ErrNotExist when src was pruned or a
// shard is missing.
func Adopt(ctx context.Context, store blob.Store, src blob.Ref, dstPrefix string) (blob.Ref, error) {
	ref, err := adopt(ctx, store, src, dstPrefix, clock{})
	if err != nil {
		return blob.Ref{}, fmt.Errorf("adopt checkpoint %s: %w", src.Key, err)
	}
	return ref, nil
}

func adopt(ctx context.Context, store blob.Store, src blob.Ref, dstPrefix string, c clock) (blob.Ref, error) {
	m, err := readManifest(ctx, store, src)
	if err != nil {
		return blob.Ref{}, err
	}
	a, m, err := claim(ctx, store, dstPrefix, m, c, func(m manifest, moved map[string]string) error {
		for _, ref := range m.refs() {
			if err := copyShard(ctx, store, ref, moved[ref.Key]); err != nil {
				return err
			}
		}
		return m.complete(ctx, store)
	})
	if err != nil {
		return blob.Ref{}, withdrawn(ctx, a, err)
	}
	m.Written = written{Adopted: &src}
	ref, err := putManifestOnce(ctx, store, manifestKey(dstPrefix, m.Step), m)
	return ref, errors.Join(err, a.withdraw(ctx))
}

// withdrawn withdraws the announcement of a manifest that will not be written.
func withdrawn(ctx context.Context, a *announcement, err error) error {
	if a == nil {
		return err
	}
	return errors.Join(err, a.withdraw(ctx))
}

// copyShard stores a shard that was moved from another key, unless the store has it.
func copyShard(ctx context.Context, store blob.Store, ref blob.Ref, from string) error {
	if from == "" {
		return nil
	}
	if _, err := store.Stat(ctx, ref.Key); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	rc, err := store.Get(ctx, from)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	got, err := store.Put(ctx, ref.Key, rc, blob.Always)
	if err == nil && got != ref {
		err = fmt.Errorf("%s: %d bytes sha256 %.12s: %w", from, got.Size, got.SHA256, ErrCorrupt)
	}
	return err
}

// complete returns an error for the first shard that is missing or short.
func (m manifest) complete(ctx context.Context, store blob.Store) error {
	for _, ref := range m.refs() {
		info, err := store.Stat(ctx, ref.Key)
		if err == nil && info.Size != ref.Size {
			err = fmt.Errorf("%s: %d bytes, want %d: %w", ref.Key, info.Size, ref.Size, ErrCorrupt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putManifestOnce writes m under key if absent and returns the Ref of the stored manifest:
// m, or another manifest of the same checkpoint.
func putManifestOnce(ctx context.Context, store blob.Store, key string, m manifest) (blob.Ref, error) {
	data, err := m.encode()
	if err != nil {
		return blob.Ref{}, err
	}
	ref, err := blob.PutBytes(ctx, store, key, data, blob.IfAbsent)
	if !errors.Is(err, blob.ErrExists) {
		return ref, err
	}
	stored, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return blob.Ref{}, err
	}
	there, err := decodeManifest(key, stored)
	if err == nil && !there.sameState(m) {
		err = fmt.Errorf("%s holds other content: %w", key, blob.ErrExists)
	}
	return blob.RefOf(key, stored), err
}
