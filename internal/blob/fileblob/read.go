package fileblob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

const (
	// readRange is what one goroutine reads in a row, readers how many there are.
	readRange, readers = 8 << 20, 4
)

var _ blob.ParallelReader = (*Store)(nil)

// ReadInto implements blob.ParallelReader. All ranges are of one file: a Put
// meanwhile makes another one.
func (s *Store) ReadInto(ctx context.Context, key string, w io.WriterAt) (int64, error) {
	f, err := s.open(ctx, key)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // opened for reading only
	info, err := f.Stat()
	if err != nil {
		return 0, notExist("get", key, err)
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for at := int64(0); at < info.Size() && groupCtx.Err() == nil; at += readRange {
		g.Go(func() error { return copyRange(groupCtx, f, w, at, min(readRange, info.Size()-at)) })
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("get %s: %w", key, s.explain(err))
	}
	return info.Size(), ctx.Err()
}

// copyRange copies length bytes from at.
func copyRange(ctx context.Context, r io.ReaderAt, w io.WriterAt, at, length int64) error {
	buf := make([]byte, min(block, length))
	for end := at + length; at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.ReadAt(buf[:min(block, end-at)], at)
		if n == 0 && errors.Is(err, io.EOF) { // it was cut off by somebody else
			return io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := w.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
