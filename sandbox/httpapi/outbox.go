package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
)

// outbox collects the lines that one side of a stream has to send. Callers append a
// line and go on. One sender takes all lines that are there, so that lines share a
// write while the socket is busy, and none waits when it is not.
type outbox struct {
	limit int // bytes above which wait blocks

	mu      sync.Mutex
	pending []byte
	spare   []byte        // the buffer that the sender is done with
	ready   chan struct{} // of capacity 1: there is something to send, or the end
	room    chan struct{} // closed when pending is sent or the outbox closed; nil when nobody waits
	closed  bool
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1)}
}

// put appends the line that write appends to its argument and returns how many
// bytes wait to be sent. It never blocks; after close it does nothing.
func (o *outbox) put(write func([]byte) []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0
	}
	had := len(o.pending)
	o.pending = write(o.pending)
	if len(o.pending) > had {
		o.pending = append(o.pending, '\n')
		o.signal()
	}
	return len(o.pending)
}

// signal wakes the sender.
func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// wait returns when less than the limit waits to be sent, and an error when ctx
// or the outbox ends first.
func (o *outbox) wait(ctx context.Context) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return io.ErrClosedPipe
		}
		if len(o.pending) < o.limit {
			o.mu.Unlock()
			return nil
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// idle reports whether there is nothing to send.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending) == 0
}

// take returns everything that is to be sent, and waits when there is nothing. The
// bytes are the caller's until the next call. At the end it returns io.EOF.
func (o *outbox) take() ([]byte, error) {
	for {
		// Goroutines that are about to run may have lines too. Let them append first:
		// a write costs more than a line.
		runtime.Gosched()
		o.mu.Lock()
		if len(o.pending) > 0 {
			out := o.pending
			o.pending, o.spare = o.spare[:0], out
			if cap(o.pending) > 4*o.limit {
				o.pending = nil // one long line is no reason to keep its memory
			}
			o.release()
			o.mu.Unlock()
			return out, nil
		}
		closed := o.closed
		o.mu.Unlock()
		if closed {
			return nil, io.EOF
		}
		<-o.ready
	}
}

// release wakes those who wait for room.
func (o *outbox) release() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// close ends the outbox; the sender still gets what is pending.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.release()
	o.signal()
}

// drain writes everything to w until the outbox is closed, and flushes when nothing
// more waits. It calls busy when a write begins and ends.
func (o *outbox) drain(w http.ResponseWriter, busy func(bool)) error {
	flusher := http.NewResponseController(w)
	for {
		b, err := o.take()
		if errors.Is(err, io.EOF) {
			return nil
		}
		busy(true)
		if _, err = w.Write(b); err == nil && o.idle() {
			err = flusher.Flush()
		}
		busy(false)
		if err != nil {
			return err
		}
	}
}

// body is the sending side of a Stream: the outbox as the body of a request.
// The transport flushes after each Read.
type body struct {
	out  *outbox
	rest []byte
}

// Read implements io.Reader: it blocks for the first byte only.
func (b *body) Read(p []byte) (n int, err error) {
	if len(b.rest) == 0 {
		if b.rest, err = b.out.take(); err != nil {
			return 0, err
		}
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.out.close()
	return nil
}

// maxHead is how much of a line that is too long is kept, for its id.
const maxHead = 4 << 10

// lines reads lines of at most limit bytes, which is more than maxHead. A longer
// one is read to its end and its start returned with tooLong.
type lines struct {
	r     io.Reader
	limit int

	buf        []byte
	start, end int // of what is read and not yet returned
}

// next returns the next line without its end. It is valid until the next call.
func (l *lines) next() (line []byte, tooLong bool, err error) {
	for scanned := 0; ; {
		if i := bytes.IndexByte(l.buf[l.start+scanned:l.end], '\n'); i >= 0 {
			line = l.buf[l.start : l.start+scanned+i]
			l.start += scanned + i + 1
			if len(line) > l.limit {
				return line[:maxHead], true, nil
			}
			return line, false, nil
		}
		scanned = l.end - l.start
		if scanned > l.limit {
			head := bytes.Clone(l.buf[l.start : l.start+maxHead])
			return head, true, l.skip()
		}
		switch err := l.fill(); {
		case errors.Is(err, io.EOF) && scanned > 0: // a last line may lack its end
			line = l.buf[l.start:l.end]
			l.start = l.end
			return line, false, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// skip drops the rest of a line.
func (l *lines) skip() error {
	for {
		if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
			l.start += i + 1
			return nil
		}
		l.start = l.end
		if err := l.fill(); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			return nil
		}
	}
}

// fill reads more, behind what is left.
func (l *lines) fill() error {
	const least = 64 << 10
	if l.start == l.end && len(l.buf) > 16*least {
		l.buf, l.start, l.end = nil, 0, 0 // one long line is no reason to keep its memory
	}
	if l.start > 0 && (l.start == l.end || len(l.buf)-l.end < least/2) {
		l.end = copy(l.buf, l.buf[l.start:l.end])
		l.start = 0
	}
	if len(l.buf)-l.end < least/2 {
		l.buf = append(make([]byte, 0, max(least, 2*len(l.buf))), l.buf[:l.end]...)
		l.buf = l.buf[:cap(l.buf)]
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil // an error comes again with the next Read
	}
	return err
}
