package httpapi

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"temper/sandbox/budget"
)

// outbox collects the lines that one side of a stream has to send. Callers append a
// line and go on. One sender takes all lines that are there, so that lines share a
// write while the socket is busy, and none waits when it is not.
type outbox struct {
	limit int // bytes above which wait blocks
	// account, when set, is charged for what waits to be sent to caller.
	account *budget.Account
	caller  string

	mu      sync.Mutex
	pending []byte
	large   []largeLine   // that are encoded when they are sent
	waiting int           // bytes of large
	spare   []byte        // the buffer that the sender is done with
	ready   chan struct{} // of capacity 1: there is something to send, or the end
	room    chan struct{} // closed when pending is sent or the outbox closed; nil when nobody waits
	closed  bool
}

// largeLine is the answer to one call, with what stands before it.
type largeLine struct {
	head   []byte
	answer *Answer
	packed bool
	size   int
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
		o.charge(len(o.pending) - had)
		o.signal()
	}
	return len(o.pending) + o.waiting
}

// charge notes bytes that wait, or no longer do.
func (o *outbox) charge(n int) {
	if o.account != nil && n != 0 {
		o.account.Add(o.caller, int64(n))
	}
}

// reply puts the line of an answer, after what head appends and with the end of the
// object, and returns how many bytes wait to be sent.
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

// wait returns when less than the limit waits to be sent, and an error when ctx
// or the outbox ends first.
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

// take returns everything that is encoded, and waits while there is nothing to send;
// nothing where only large lines wait. The bytes are the caller's until the next call.
// At the end it returns io.EOF.
func (o *outbox) next() ([]byte, error) {
	for {
		// Goroutines that are about to run may have lines too. Let them append first:
		// a write costs more than a line.
		runtime.Gosched()
		o.mu.Lock()
		if len(o.pending)+len(o.large) > 0 {
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

// takeLarge returns the next large line, and nil when there is none.
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

// close ends the outbox; the sender still gets what is pending.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.release()
	o.signal()
}

// forget gives up what will not be sent.
func (o *outbox) forget() {
	o.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.charge(-len(o.pending) - o.waiting)
	o.pending, o.large, o.waiting = nil, nil, 0
}

// drain writes everything until the outbox is closed, and flushes when nothing more
// waits. When that fails it closes the outbox itself.
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

// send encodes the line as it is written.
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
