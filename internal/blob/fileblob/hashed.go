package fileblob

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"temper/internal/blob"
)

var _ blob.HashedPutter = (*Store)(nil)

// PutHashed implements blob.HashedPutter. A source that is an io.WriterTo is
// written from its own memory.
func (s *Store) PutHashed(ctx context.Context, want blob.Ref, r io.Reader) error {
	if err := checkKey(want.Key); err != nil {
		return err
	}
	temp, err := s.stage(func(f *os.File) error {
		w := &diskWriter{ctx: ctx, f: f}
		if _, ok := r.(io.WriterTo); !ok {
			r = &contextReader{ctx: ctx, r: r}
		}
		if _, err := io.CopyBuffer(w, r, make([]byte, min(block, want.Size+1))); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return blob.CheckSize(want, w.size)
	})
	if err == nil {
		defer s.root.Remove(temp) //nolint:errcheck // after the rename the name is gone; a leftover is swept by a later New
		err = s.install(temp, want.Key, blob.Always)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", want.Key, s.explain(err))
	}
	return nil
}

// diskWriter writes a file in blocks, tells the disk early, and stops with its context.
type diskWriter struct {
	ctx           context.Context //nolint:containedctx // of one PutHashed
	f             *os.File
	size, flushed int64
}

// Write implements io.Writer.
func (w *diskWriter) Write(p []byte) (written int, err error) {
	for written < len(p) {
		if err := w.ctx.Err(); err != nil {
			return written, err
		}
		n, err := w.f.Write(p[written:min(written+block, len(p))])
		written += n
		w.size += int64(n)
		if err != nil {
			return written, err
		}
		w.flush()
	}
	return written, nil
}

// flush tells the disk to begin. It is best effort: only the sync at the end makes the
// bytes durable.
func (w *diskWriter) flush() {
	if w.size-w.flushed < flushEvery {
		return
	}
	_ = unix.SyncFileRange(int(w.f.Fd()), w.flushed, w.size-w.flushed, unix.SYNC_FILE_RANGE_WRITE)
	w.flushed = w.size
}
