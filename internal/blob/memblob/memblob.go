package memblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"temper/internal/blob"
)

// Store keeps blobs in a map. The zero value is ready for use.
type Store struct {
	mu    sync.RWMutex
	blobs map[string]entry
}

type entry struct {
	data    []byte
	modTime time.Time
}

var _ blob.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{} }

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return blob.Ref{}, err
	}
	data, err := io.ReadAll(r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("put %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[key]; ok && cond == blob.IfAbsent {
		return blob.Ref{}, fmt.Errorf("put %s: %w", key, blob.ErrExists)
	}
	if s.blobs == nil {
		s.blobs = map[string]entry{}
	}
	s.blobs[key] = entry{data: data, modTime: time.Now()}
	return blob.RefOf(key, data), nil
}

// Swap implements blob.Store.
func (s *Store) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if err := errors.Join(ctx.Err(), blob.CheckSwap(key, old)); err != nil {
		return blob.Ref{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var have blob.Ref
	if e, ok := s.blobs[key]; ok {
		have = blob.RefOf(key, e.data)
	}
	if have != old {
		return blob.Ref{}, fmt.Errorf("swap %s: %w", key, blob.ErrConflict)
	}
	if s.blobs == nil {
		s.blobs = map[string]entry{}
	}
	s.blobs[key] = entry{data: bytes.Clone(data), modTime: time.Now()}
	return blob.RefOf(key, data), nil
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	e, err := s.lookup(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(e.data)), nil
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := blob.CheckRange(key, offset); err != nil {
		return nil, err
	}
	e, err := s.lookup(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	data := e.data[min(offset, int64(len(e.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	e, err := s.lookup(ctx, "stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Key: key, Size: int64(len(e.data)), ModTime: e.modTime}, nil
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []blob.Info
	for key, e := range s.blobs {
		if strings.HasPrefix(key, prefix) {
			out = append(out, blob.Info{Key: key, Size: int64(len(e.data)), ModTime: e.modTime})
		}
	}
	slices.SortFunc(out, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// ListFolder implements blob.Store.
func (s *Store) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	if err := errors.Join(ctx.Err(), blob.CheckFolder(folder)); err != nil {
		return nil, nil, err
	}
	prefix := ""
	if folder != "" {
		prefix = folder + "/"
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var blobs []blob.Info
	names := map[string]bool{}
	for key, e := range s.blobs {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if name, _, below := strings.Cut(rest, "/"); below {
			names[name] = true
			continue
		}
		blobs = append(blobs, blob.Info{Key: key, Size: int64(len(e.data)), ModTime: e.modTime})
	}
	slices.SortFunc(blobs, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	return blobs, slices.Sorted(maps.Keys(names)), nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blobs, key)
	return nil
}

// Locate implements blob.Store.
func (s *Store) Locate(key string) string { return "mem:" + key }

func (s *Store) lookup(ctx context.Context, op, key string) (entry, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key)); err != nil {
		return entry{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.blobs[key]
	if !ok {
		return entry{}, fmt.Errorf("%s %s: %w", op, key, blob.ErrNotExist)
	}
	return e, nil
}
