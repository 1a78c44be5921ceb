package fileblob

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RawPut copies r into a file as a program without a store would: writes of a
// MiB, a sync, a rename. For measurements.
func (s *Store) RawPut(ctx context.Context, key string, r io.Reader) error {
	path := s.Locate(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	// Plain writers and readers keep io.CopyBuffer from choosing another block size.
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, &contextReader{ctx: ctx, r: r}, make([]byte, block))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// RawGet copies the file of a key into w, a MiB at a time.
func (s *Store) RawGet(ctx context.Context, key string, w io.WriterAt) error {
	f, err := os.Open(s.Locate(key))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	_, err = io.CopyBuffer(struct{ io.Writer }{io.NewOffsetWriter(w, 0)}, &contextReader{ctx: ctx, r: f}, make([]byte, block))
	return err
}

// Forget drops the file of a key from the page cache, so that the next reader
// has to ask the disk. For measurements.
func (s *Store) Forget(key string) error {
	f, err := os.Open(s.Locate(key))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
