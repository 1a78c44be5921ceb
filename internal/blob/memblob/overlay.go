package memblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"temper/internal/blob"
)

// Overlay is a scratch over a base. A key that is hidden is absent until it is
// written.
type Overlay struct {
	base, scratch blob.Store

	mu     sync.RWMutex
	hidden []string // keys, or prefixes that end with a slash
}

var _ blob.Store = (*Overlay)(nil)

// NewOverlay lays a scratch over a base, which is only read.
func NewOverlay(base, scratch blob.Store) *Overlay { return &Overlay{base: base, scratch: scratch} }

// Hide makes the base's objects under the keys absent; a key that ends with a slash is a
// folder. Objects of the scratch stay.
func (s *Overlay) Hide(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = append(s.hidden, keys...)
}

func (s *Overlay) hides(key string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.hidden, func(h string) bool {
		return h == key || strings.HasSuffix(h, "/") && strings.HasPrefix(key, h)
	})
}

// below reads from the base what it has and is not hidden.
func below[T any](s *Overlay, op, key string, read func() (T, error)) (T, error) {
	if s.hides(key) {
		var none T
		return none, fmt.Errorf("%s %s: %w", op, key, blob.ErrNotExist)
	}
	return read()
}

// either reads from the scratch, and from the base what the scratch does not have.
func either[T any](s *Overlay, op, key string, read func(blob.Store) (T, error)) (T, error) {
	v, err := read(s.scratch)
	if !errors.Is(err, blob.ErrNotExist) {
		return v, err
	}
	return below(s, op, key, func() (T, error) { return read(s.base) })
}

// Put implements blob.Store.
func (s *Overlay) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if cond == blob.IfAbsent {
		_, err := below(s, "stat", key, func() (blob.Info, error) { return s.base.Stat(ctx, key) })
		if err == nil {
			return blob.Ref{}, fmt.Errorf("put %s: %w", key, blob.ErrExists)
		}
		if !errors.Is(err, blob.ErrNotExist) {
			return blob.Ref{}, err
		}
	}
	return s.scratch.Put(ctx, key, r, cond)
}

// Swap implements blob.Store.
func (s *Overlay) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), blob.CheckSwap(key, old)); err != nil {
		return blob.Ref{}, err
	}
	have, err := below(s, "get", key, func() ([]byte, error) { return blob.ReadKey(ctx, s.base, key) })
	if errors.Is(err, blob.ErrNotExist) {
		return s.scratch.Swap(ctx, key, old, data)
	}
	if err != nil {
		return blob.Ref{}, err
	}
	if _, err := s.scratch.Stat(ctx, key); err == nil || !errors.Is(err, blob.ErrNotExist) {
		return s.scratch.Swap(ctx, key, old, data) // which answers for its own failure
	}
	if blob.RefOf(key, have) != old {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, blob.ErrConflict)
	}
	ref, err := s.scratch.Put(ctx, key, bytes.NewReader(data), blob.IfAbsent)
	if errors.Is(err, blob.ErrExists) {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, blob.ErrConflict)
	}
	return ref, err
}

// Get implements blob.Store.
func (s *Overlay) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return either(s, "get", key, func(from blob.Store) (io.ReadCloser, error) { return from.Get(ctx, key) })
}

// GetRange implements blob.Store.
func (s *Overlay) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return either(s, "get", key, func(from blob.Store) (io.ReadCloser, error) { return from.GetRange(ctx, key, offset, length) })
}

// Stat implements blob.Store.
func (s *Overlay) Stat(ctx context.Context, key string) (blob.Info, error) {
	return either(s, "stat", key, func(from blob.Store) (blob.Info, error) { return from.Stat(ctx, key) })
}

// List implements blob.Store.
func (s *Overlay) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	below, err := s.base.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	above, err := s.scratch.List(ctx, prefix)
	return s.merge(below, above), err
}

// ListFolder implements blob.Store. A folder of which everything is hidden may be named.
func (s *Overlay) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	below, folders, err := s.base.ListFolder(ctx, folder)
	if err != nil {
		return nil, nil, err
	}
	above, more, err := s.scratch.ListFolder(ctx, folder)
	folders = append(folders, more...)
	slices.Sort(folders)
	return s.merge(below, above), slices.Compact(folders), err
}

// merge is what two listings show together.
func (s *Overlay) merge(below, above []blob.Info) []blob.Info {
	written := map[string]bool{}
	for _, info := range above {
		written[info.Key] = true
	}
	for _, info := range below {
		if !written[info.Key] && !s.hides(info.Key) {
			above = append(above, info)
		}
	}
	slices.SortFunc(above, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	return above
}

// Delete implements blob.Store.
func (s *Overlay) Delete(ctx context.Context, key string) error {
	if err := s.scratch.Delete(ctx, key); err != nil {
		return err
	}
	if !s.hides(key) {
		s.Hide(key)
	}
	return nil
}

// Locate implements blob.Store.
func (s *Overlay) Locate(key string) string { return s.base.Locate(key) }
