package httpapi

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"temper/sandbox/budget"
)

// outbox collects the lines that one side of a stream sends. Callers append a line without
// waiting. One sender takes all collected lines at once, so that lines share a write while
// the socket is busy, and are sent at once when it is not.
type outbox struct {
	limit int // bytes above which wait blocks
	// account, when set, is charged for the bytes that wait to be sent to caller.
	account *budget.Account
	caller  string

	mu      sync.Mutex
	pending []byte
	large   []largeLine   // answers that are encoded while they are sent
	waiting int           // bytes of large
	spare   []byte        // the buffer that the sender has finished with
	ready   chan struct{} // of capacity 1: there are lines to send, or the outbox is closed
	room    chan struct{} // closed when pending is sent or the outbox is closed; nil without waiters
	closed  bool
}

// largeLine is the answer to one call, with the text before it.
type largeLine struct {
	head   []byte
	answer *Answer
	packed bool
	size   int
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1)}
}

// put appends the line that write appends to its argument, and returns how many bytes wait
// to be sent. It never blocks; after close it does nothing.
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
		o.charge(len(o.pending) - had)
		o.signal()
	}
	return len(o.pending) + o.waiting
}

// charge charges n waiting bytes to the account, or releases them if n is negative.
func (o *outbox) charge(n int) {
	if o.account != nil && n != 0 {
		o.account.Add(o.caller, int64(n))
	}
}

// reply appends the line of an answer: the text of head, the answer and the end of the
// object. It returns how many bytes wait to be sent.
func (o *outbox) reply(a *Answer, packed bool, head func([]byte) []byte) int {
	size := a.size()
	if size <= smallAnswer {
		return o.put(func(b []byte) []byte {
			enc := encoder{packed: packed, buf: head(b)}
			enc.answer(a)
			return append(enc.buf, '}')
		})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0
	}
	o.large = append(o.large, largeLine{head: head(nil), answer: a, packed: packed, size: size})
	o.waiting += size
	o.charge(size)
	o.signal()
	return len(o.pending) + o.waiting
}

// signal wakes the sender.
func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// wait waits until less than limit bytes wait to be sent. It returns an error when ctx or
// the outbox ends first.
func (o *outbox) wait(ctx context.Context) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return io.ErrClosedPipe
		}
		if len(o.pending)+o.waiting < o.limit {
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
	return len(o.pending)+len(o.large) == 0
}

// next returns all encoded lines, and waits while there is nothing to send. It returns no
// bytes if there are only large lines. The bytes are valid until the next call. At the end
// it returns io.EOF.
func (o *outbox) next() ([]byte, error) {
	for {
		// Goroutines that are ready to run may have lines too. Let them append first:
		// a write costs more than a line.
		runtime.Gosched()
		o.mu.Lock()
		if len(o.pending)+len(o.large) > 0 {
			out := o.pending
			o.pending, o.spare = o.spare[:0], out
			if cap(o.pending) > 4*o.limit {
				o.pending = nil // do not keep the memory of one long line
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

// release wakes the callers of wait.
func (o *outbox) release() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// takeLarge removes and returns the next large line, nil when there is none.
func (o *outbox) takeLarge() *largeLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.large) == 0 {
		return nil
	}
	l := o.large[0]
	o.large[0] = largeLine{}
	o.large = o.large[1:]
	o.waiting -= l.size
	o.release()
	return &l
}

// close closes the outbox; the sender still gets the pending lines.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.release()
	o.signal()
}

// forget closes the outbox and drops the unsent lines.
func (o *outbox) forget() {
	o.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.charge(-len(o.pending) - o.waiting)
	o.pending, o.large, o.waiting = nil, nil, 0
}

// drain writes all lines until the outbox is closed, and flushes when no more lines wait.
// If that fails, it closes the outbox.
func (o *outbox) drain(to io.Writer, flush func() error) error {
	for {
		b, err := o.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if len(b) > 0 {
			_, err = to.Write(b)
			o.charge(-len(b))
		}
		for err == nil {
			l := o.takeLarge()
			if l == nil {
				break
			}
			err = l.send(to)
			o.charge(-l.size)
		}
		if err == nil && o.idle() {
			err = flush()
		}
		if err != nil {
			o.forget()
			return err
		}
	}
}

// send encodes the line while writing it.
func (l *largeLine) send(to io.Writer) error {
	enc := encoder{to: to, packed: l.packed, buf: l.head}
	enc.answer(l.answer)
	enc.buf = append(enc.buf, "}\n"...)
	return enc.flush()
}

// body is the sending side of a Stream: the outbox as the body of a request.
// The transport flushes after each Read.
type body struct {
	out    *outbox
	unread []byte
}

// Read implements io.Reader: it blocks for the first byte only.
func (b *body) Read(p []byte) (n int, err error) {
	if len(b.unread) == 0 {
		if b.unread, err = b.out.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, b.unread)
	b.unread = b.unread[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.out.close()
	return nil
}
