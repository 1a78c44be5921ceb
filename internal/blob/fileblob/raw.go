package fileblob

import (
	"context"
	"io"
	"os"
	"path/filepath"
)

// RawPut copies r into a file and syncs it, as a program without a store would,
// for measurements.
func (s *Store) RawPut(ctx context.Context, key string, r io.Reader) error {
	path := s.Locate(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, &contextReader{ctx: ctx, r: r})
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// RawGet copies the file of a key into w.
func (s *Store) RawGet(ctx context.Context, key string, w io.WriterAt) error {
	f, err := os.Open(s.Locate(key))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	_, err = io.Copy(io.NewOffsetWriter(w, 0), &contextReader{ctx: ctx, r: f})
	return err
}
