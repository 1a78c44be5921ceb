// Package storebench measures what a store of blobs gives: throughput beside the
// store's own client library, latencies, the promise that one of several writers
// wins, and what checkpoints cost.
//
// Invariant: a measurement leaves nothing in the store.
package storebench

import (
	"context"
	"errors"
	"io"

	"temper/internal/blob"
)

// rawStore is a store that also moves bytes with its client library alone.
type rawStore interface {
	RawPut(ctx context.Context, key string, r io.Reader) error
	RawGet(ctx context.Context, key string, w io.WriterAt) error
}

// clean removes the blobs below a folder; "" is the whole store.
func clean(ctx context.Context, store blob.Store, folder string) error {
	infos, err := store.List(ctx, folder)
	for _, info := range infos {
		err = errors.Join(err, store.Delete(ctx, info.Key))
	}
	return err
}

// memory is an io.WriterAt of a fixed length.
type memory []byte

// WriteAt implements io.WriterAt.
func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }
