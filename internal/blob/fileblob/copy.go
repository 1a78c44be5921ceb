package fileblob

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// smallBlob is the size up to which one goroutine copies alone.
	smallBlob = 64 << 10
	// block is the number of bytes of a large blob that are hashed and written at a time.
	// numBlocks is the number of blocks under way: one is read or written, the others are
	// hashed.
	block, numBlocks = 1 << 20, 3
	// flushEvery is the number of bytes after which the disk is told to begin writing, so
	// that it does not idle until the sync at the end.
	flushEvery = 8 << 20
)

// copyHashed copies all of r to f and returns its hash. The bytes are hashed
// while they are written.
func copyHashed(ctx context.Context, f *os.File, r io.Reader) (sum hash.Hash, size int64, err error) {
	sum = sha256.New()
	first := make([]byte, smallBlob)
	n, err := io.ReadFull(&contextReader{ctx: ctx, r: r}, first)
	first = first[:n]
	_, _ = sum.Write(first) // never fails
	if _, writeErr := f.Write(first); writeErr != nil {
		return nil, 0, writeErr
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return sum, int64(n), ctx.Err()
	}
	if err != nil {
		return nil, 0, err
	}
	rest, err := copyBlocks(ctx, f, r, sum)
	return sum, int64(n) + rest, err
}

// copyBlocks copies r to f, block by block, while another goroutine adds what
// was read to the hash.
func copyBlocks(ctx context.Context, f *os.File, r io.Reader, sum hash.Hash) (size int64, err error) {
	free, full := make(chan []byte, numBlocks), make(chan []byte, numBlocks)
	for range numBlocks {
		free <- make([]byte, block)
	}
	var hasher sync.WaitGroup
	hasher.Go(func() {
		for b := range full {
			_, _ = sum.Write(b) // never fails
			free <- b[:block]
		}
	})
	defer hasher.Wait()
	defer close(full)
	flushed := int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return size, err
		}
		b := <-free
		n, err := io.ReadFull(r, b)
		full <- b[:n]
		// The block comes back when it is hashed, and is not taken before it is written.
		if _, writeErr := f.Write(b[:n]); writeErr != nil {
			return size, writeErr
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return size, ctx.Err()
		}
		if err != nil {
			return size, err
		}
		if size-flushed >= flushEvery {
			// Best effort: only the sync at the end makes the bytes durable.
			_ = unix.SyncFileRange(int(f.Fd()), flushed, size-flushed, unix.SYNC_FILE_RANGE_WRITE)
			flushed = size
		}
	}
}
