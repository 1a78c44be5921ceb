package fileblob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

const (
	// readRange is what one goroutine reads in a row, readers how many there are.
	readRange, readers = 16 << 20, 2
)

var _ blob.ParallelReader = (*Store)(nil)

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := blob.CheckRange(key, offset); err != nil {
		return nil, err
	}
	f, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	if length < 0 {
		length = math.MaxInt64 - offset
	}
	return section{io.NewSectionReader(f, offset, length), f}, nil
}

// section is a part of a file that is closed with it.
type section struct {
	*io.SectionReader
	io.Closer
}

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
	var next atomic.Int64 // where the next range begins
	for range min(readers, (info.Size()+readRange-1)/readRange) {
		g.Go(func() error {
			buf := make([]byte, min(block, info.Size()))
			for {
				at := next.Add(readRange) - readRange
				if at >= info.Size() {
					return nil
				}
				if err := copyRange(groupCtx, f, w, buf, span{at, min(at+readRange, info.Size())}); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("get %s: %w", key, s.explain(err))
	}
	return info.Size(), ctx.Err()
}

// span is a part of a file.
type span struct{ at, end int64 }

// copyRange copies one range, a buffer at a time.
func copyRange(ctx context.Context, r io.ReaderAt, w io.WriterAt, buf []byte, s span) error {
	for s.at < s.end {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.ReadAt(buf[:min(int64(len(buf)), s.end-s.at)], s.at)
		if n == 0 && errors.Is(err, io.EOF) { // another process truncated the file
			return io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := w.WriteAt(buf[:n], s.at); err != nil {
			return err
		}
		s.at += int64(n)
	}
	return nil
}
