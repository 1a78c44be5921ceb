package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"temper/sandbox/budget"
)

// maxDeadline is the longest deadline of a call, in milliseconds.
const maxDeadline = int64(365 * 24 * time.Hour / time.Millisecond)

// bounds limit one stream on the server. The server does not read a stream at one of the
// first three bounds until there is room again; it ends a stream that exceeds one of the
// others.
type bounds struct {
	calls     int           // calls in flight
	lineBytes int           // bytes of the lines of calls in flight
	unsent    int           // bytes of answers that the caller has not read
	held      int           // unread bytes, including answers to calls already in flight
	stall     time.Duration // longest time of one write
	// patient is how long a call waits for unread answers before it is refused.
	patient time.Duration
}

func defaultBounds(b *budget.Budget) bounds {
	return bounds{
		calls: 1 << 16, lineBytes: 64 << 20, unsent: maxUnsent, held: int(b.Answers.Most()),
		stall: 30 * time.Second, patient: patientFor,
	}
}

// expired returns a deadline in the past.
func expired() time.Time { return time.Unix(1, 0) }

// serverStream is the server's side of one stream.
type serverStream struct {
	h       *handler
	out     *outbox
	ctl     *http.ResponseController
	ctx     context.Context // the request's context; the calls of the stream end with it
	end     context.CancelFunc
	caller  string
	packed  bool
	writing beginTime // start of the running write
	partial beginTime // start of an incomplete line
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[string]*pendingCall
	count int
	bytes int
	room  chan struct{} // closed when a call ends; nil without waiters
}

// pendingCall is a call in flight.
type pendingCall struct {
	id     string
	size   int
	cancel context.CancelFunc
	next   *pendingCall // another call of the same ID
}

// stream serves one stream until the caller ends it or the server drains. After the end of
// the request's body the calls in flight still finish; the end of the connection cancels
// them.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 {
		w.Header().Set("Connection", "close") // the body has no end
		h.write(w, http.StatusHTTPVersionNotSupported, failureBody{*invalid("a stream needs HTTP/2, not %s", r.Proto)})
		return
	}
	s := &serverStream{
		h: h, out: newOutbox(h.bounds.unsent), ctl: http.NewResponseController(w), calls: make(map[string]*pendingCall),
		caller: callerOf(r), packed: packs(r),
	}
	s.out.account, s.out.caller = h.cfg.Budget.Answers, s.caller
	in := &lines{r: r.Body, limit: maxCallBody, grow: s.charge, unfinished: func(yes bool) { s.partial.mark(yes) }}
	if f := s.admit(leastLines); f != nil {
		h.fail(w, f)
		return
	}
	in.buf = make([]byte, leastLines)
	defer in.shrink(0)
	s.ctx, s.end = context.WithCancel(r.Context())
	defer s.end()
	// A stream has no time limit. A connection without deadlines returns an error here.
	_ = s.ctl.SetReadDeadline(time.Time{})
	_ = s.ctl.SetWriteDeadline(time.Time{})
	w.Header().Set("Content-Type", typeLines)
	w.WriteHeader(http.StatusOK)
	load := h.cfg.Load()
	s.sendLoad(load)
	var sender, reporter sync.WaitGroup
	sender.Go(func() {
		if err := s.send(w); err != nil {
			h.cfg.Logger.Debug("write stream", "err", err)
			s.end()
			s.out.close()
		}
	})
	reporter.Go(func() { s.report(s.ctx, load) })
	if err := s.read(in); err != nil { //nolint:contextcheck // s.ctx is of the request
		h.cfg.Logger.Debug("read stream", "err", err)
		s.end()
	}
	s.running.Wait()
	s.out.close()
	sender.Wait() // the reporter still ends a write that does not return
	s.end()
	reporter.Wait()
}

// send writes answers until the outbox is closed.
func (s *serverStream) send(w http.ResponseWriter) error {
	return s.out.drain(watched{w, &s.writing}, func() error {
		s.writing.mark(true)
		err := s.ctl.Flush()
		s.writing.mark(false)
		return err
	})
}

// watched records when each write began.
type watched struct {
	w     http.ResponseWriter
	write *beginTime
}

// Write implements io.Writer.
func (w watched) Write(b []byte) (int, error) {
	w.write.mark(true)
	defer w.write.mark(false)
	return w.w.Write(b)
}

// beginTime is when an operation began that has not ended, nil without one. It keeps the
// monotonic clock reading, so that a jump of the wall clock ends no stream.
type beginTime struct{ atomic.Pointer[time.Time] }

// mark records that an operation has begun, or has ended. It keeps the time of an operation
// that has already begun.
func (s *beginTime) mark(began bool) {
	if !began {
		s.Store(nil)
		return
	}
	now := time.Now()
	s.CompareAndSwap(nil, &now)
}

// overdue reports whether the operation has lasted longer than d.
func (s *beginTime) overdue(now time.Time, d time.Duration) bool {
	began := s.Load()
	return began != nil && now.Sub(*began) > d
}

// report sends the load periodically. It ends the stream when the server drains and no call
// is in flight, and when the caller does not read.
func (s *serverStream) report(ctx context.Context, said Load) {
	const perPeriod = 10
	tick := time.NewTicker(loadPeriod / perPeriod)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if s.writing.overdue(now, s.h.bounds.stall) {
				s.reset()
			}
			if s.partial.overdue(now, budget.Whole(s.h.cfg.Patience)) {
				s.partial.mark(false)
				slow := budget.SlowError{Patience: s.h.cfg.Patience}
				s.reply("", &Answer{Error: &Failure{Code: CodeSlow, Message: "line: " + slow.Error()}})
				_ = s.ctl.SetReadDeadline(expired()) // calls in flight still get their answers
			}
		}
		load := s.h.cfg.Load()
		if n%perPeriod == 0 || load.Draining != said.Draining {
			said = load
			s.sendLoad(load)
		}
		if load.Draining && s.idle() {
			_ = s.ctl.SetReadDeadline(expired()) // a caller that sends no more ends the stream by itself
		}
	}
}

func (s *serverStream) sendLoad(l Load) {
	s.out.put(func(b []byte) []byte { return appendLoad(b, &l) })
}

// reset ends the stream at once, even while a write does not return.
func (s *serverStream) reset() {
	_ = s.ctl.SetWriteDeadline(expired()) // if this fails, the write ends with the connection
	s.end()
}

// read handles lines until the caller sends no more. It returns an error when the caller is
// gone.
func (s *serverStream) read(in *lines) error {
	for {
		if err := s.waitForRoom(); err != nil {
			return err
		}
		line, long, err := in.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, errNoGrowth):
			s.reply(idOf(line), &Answer{Error: noRoom("bodies hold", s.h.cfg.Budget.Bodies)})
		case err != nil:
			return err
		case long:
			s.reply(idOf(line), &Answer{Error: tooLarge("line", maxCallBody)})
		case len(bytes.TrimSpace(line)) > 0:
			s.handle(line)
		}
	}
}

// waitForRoom waits until the stream is below its bounds.
func (s *serverStream) waitForRoom() error {
	for {
		if err := s.out.wait(s.ctx); err != nil {
			return err
		}
		if err := s.h.cfg.Budget.Answers.Acquire(s.ctx, s.caller, 0); err != nil {
			return err
		}
		s.mu.Lock()
		if s.count < s.h.bounds.calls && s.bytes < s.h.bounds.lineBytes {
			s.mu.Unlock()
			return nil
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// handle handles one line: it answers every call in it once.
func (s *serverStream) handle(line []byte) {
	var f ClientFrame
	if err := unmarshal(line, &f); err != nil {
		s.reply(idOf(line), &Answer{Error: invalid("frame: %s", reason(err))})
		return
	}
	switch {
	case f.Call == nil && f.Cancel != "":
		s.cancel(f.Cancel)
	case f.Call == nil:
		s.reply("", &Answer{Error: invalid("frame: neither a call nor a cancel")})
	case f.Cancel != "":
		s.reply(f.Call.ID, &Answer{Error: invalid("frame: a call and a cancel")})
	case f.Call.ID == "":
		s.reply("", &Answer{Error: invalid("call: no id to answer to")})
	case f.DeadlineMS != nil && (*f.DeadlineMS < 0 || *f.DeadlineMS > maxDeadline):
		s.reply(f.Call.ID, &Answer{Error: invalid("deadline_ms of %d is not from 0 to %d", *f.DeadlineMS, maxDeadline)})
	default:
		s.start(&f, len(line))
	}
}

func (s *serverStream) start(f *ClientFrame, size int) {
	if failure := s.admit(size); failure != nil {
		s.reply(f.Call.ID, &Answer{Error: failure})
		return
	}
	t := &pendingCall{id: f.Call.ID, size: size}
	var ctx context.Context
	if f.DeadlineMS != nil {
		ctx, t.cancel = context.WithTimeout(s.ctx, time.Duration(*f.DeadlineMS)*time.Millisecond)
	} else {
		ctx, t.cancel = context.WithCancel(s.ctx)
	}
	s.mu.Lock()
	s.count++
	s.bytes += size
	t.next = s.calls[t.id]
	s.calls[t.id] = t
	s.mu.Unlock()
	s.running.Go(func() {
		answer := s.h.answer(ctx, f.Call, s.caller)
		t.cancel()
		s.reply(t.id, &answer)
		s.drop(t)
	})
}

// charge charges bytes that the stream has read, or releases them if n is negative.
func (s *serverStream) charge(n int) error {
	bodies := s.h.cfg.Budget.Bodies
	if n < 0 {
		bodies.Release(s.caller, int64(-n))
		return nil
	}
	return bodies.TryAcquire(s.caller, int64(n))
}

// admit is like charge, but returns a Failure.
func (s *serverStream) admit(n int) *Failure {
	if s.charge(n) != nil {
		return noRoom("bodies hold", s.h.cfg.Budget.Bodies)
	}
	return nil
}

// drop removes an answered call.
func (s *serverStream) drop(t *pendingCall) {
	_ = s.charge(-t.size) // a release always succeeds
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	s.bytes -= t.size
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	if s.calls[t.id] == t && t.next == nil {
		delete(s.calls, t.id)
		return
	}
	at := s.calls[t.id]
	if at == t {
		s.calls[t.id] = t.next
		return
	}
	for at.next != t {
		at = at.next
	}
	at.next = t.next
}

// cancel cancels the calls with an ID; they still get answers.
func (s *serverStream) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := s.calls[id]; t != nil; t = t.next {
		t.cancel()
	}
}

func (s *serverStream) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count == 0 && s.out.idle()
}

// reply answers one call frame.
func (s *serverStream) reply(id string, a *Answer) {
	unsent := s.out.reply(a, s.packed, func(head []byte) []byte {
		return append(appendString(append(head, `{"id":`...), id), ',')
	})
	if unsent > s.h.bounds.held {
		s.h.cfg.Logger.Warn("stream is ended: its caller does not read", "unsent_bytes", unsent)
		s.reset()
	}
}
