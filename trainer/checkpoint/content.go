package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"temper/internal/blob"
)

// content writes the bytes of a blob, the same ones each time.
type content func(w io.Writer) error

// bytesOf is the content of bytes in memory.
func bytesOf(data []byte) content {
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
}

// storedContent is the content of another blob.
func storedContent(ctx context.Context, store blob.Store, key string) content {
	return func(w io.Writer) error {
		r, err := store.Get(ctx, key)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // nothing was written through this handle
		_, err = io.Copy(w, r)
		return err
	}
}

// ref is the Ref that the content has under key.
func (c content) ref(key string) (blob.Ref, error) {
	sum, n := sha256.New(), &length{}
	if err := c(io.MultiWriter(sum, n)); err != nil {
		return blob.Ref{}, err
	}
	return blob.Ref{Key: key, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n.bytes}, nil
}

// length counts the bytes that are written to it.
type length struct{ bytes int64 }

func (l *length) Write(p []byte) (int, error) {
	l.bytes += int64(len(p))
	return len(p), nil
}

// put stores the content as it is made. Content that differs from want is an
// error; no manifest names that blob.
func (c content) put(ctx context.Context, store blob.Store, want blob.Ref) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c(w)
		w.CloseWithError(err)
		done <- err
	}()
	got, err := store.Put(ctx, want.Key, r, blob.Always)
	r.Close() //nolint:errcheck // always nil; ends a writer whose reader has given up
	if writeErr := <-done; err == nil && writeErr != nil {
		err = writeErr
	}
	if err == nil && got != want {
		err = fmt.Errorf("%s: content changed while it was stored: %w", want.Key, blob.ErrCorrupt)
	}
	return err
}
