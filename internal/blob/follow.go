package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
)

// followBlock is the number of bytes that are hashed at a time behind the writers.
const followBlock = 1 << 20

// hashedBuffer is an io.WriterAt of a fixed length whose bytes are hashed, in
// their order, while others are still on their way.
type hashedBuffer struct {
	data []byte

	mu   sync.Mutex
	more sync.Cond
	// done is the length of the bytes without a gap; islands are the ranges beyond the
	// first gap, by their beginning.
	done    int64
	islands map[int64]int64
	closed  bool
}

func newHashedBuffer(size int64) *hashedBuffer {
	b := &hashedBuffer{data: make([]byte, size), islands: map[int64]int64{}}
	b.more.L = &b.mu
	return b
}

// WriteAt implements io.WriterAt. No byte may be written twice.
func (b *hashedBuffer) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > int64(len(b.data)) {
		return 0, io.ErrShortWrite
	}
	if len(p) == 0 {
		return 0, nil
	}
	n := copy(b.data[at:], p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.islands[at] = at + int64(n)
	for {
		end, ok := b.islands[b.done]
		if !ok {
			return n, nil
		}
		delete(b.islands, b.done)
		b.done = end
		b.more.Signal()
	}
}

// close ends the writes.
func (b *hashedBuffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Signal()
}

// sum hashes what comes until the buffer is closed or full.
func (b *hashedBuffer) sum() string {
	h := sha256.New()
	for at := int64(0); at < int64(len(b.data)); {
		next := min(at+followBlock, int64(len(b.data)))
		b.mu.Lock()
		for b.done < next && !b.closed {
			b.more.Wait()
		}
		done := b.done
		b.mu.Unlock()
		if done < next {
			break
		}
		_, _ = h.Write(b.data[at:next]) // never fails
		at = next
	}
	return hex.EncodeToString(h.Sum(nil))
}
