package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"temper/sandbox"
)

// Times of a stream.
const (
	dialTimeout = 10 * time.Second
	loadPeriod  = time.Second
	silence     = 10 * loadPeriod // silence after which a peer counts as dead
)

// maxUnsent bounds the unsent bytes of a stream; callers wait at the bound.
const maxUnsent = 4 << 20

// errNoStream means that the server answers but has no streams.
var errNoStream = errors.New("the server serves no streams")

// errNotAllowed means that the server refuses this caller.
var errNotAllowed = errors.New("not allowed")

// errClosed is the cause of a stream's end when its owner closed it.
var errClosed = errors.New("closed")

// goneError is the error of a call whose connection ended before the answer came, or could
// not be made.
type goneError struct {
	address string
	cause   error
}

func (e *goneError) Error() string {
	return fmt.Sprintf("%v: %s: %v", sandbox.ErrUnavailable, e.address, e.cause)
}

func (e *goneError) Unwrap() []error { return []error{sandbox.ErrUnavailable, e.cause} }

// Stream is one full-duplex connection to a server. It carries any number of
// calls at once and ends for all of them together; it does not redial. It is
// safe for concurrent use.
type Stream struct {
	target *target
	out    *outbox
	end    context.CancelFunc // ends the request
	load   atomic.Pointer[Load]
	heard  chan struct{} // closed by the first load
	done   chan struct{}
	owner  sync.WaitGroup

	mu    sync.Mutex
	calls map[string]*streamCall
	err   error // why the stream has ended or is ending
}

var _ sandbox.Executor = (*Stream)(nil)

// streamCall is one call in flight; answer and err are valid when done is closed.
type streamCall struct {
	done   chan struct{}
	answer Answer
	err    error
}

// Dial opens a stream to the server at address: host:port, an http or https URL, or
// unix:/path/to/socket. It returns when the server has sent its load; ctx bounds only that.
// The caller closes the stream.
func Dial(ctx context.Context, address string, opts Options) (*Stream, error) {
	t, err := parseAddress(address, opts)
	if err != nil {
		return nil, err
	}
	return dial(ctx, t)
}

func dial(caller context.Context, t *target) (*Stream, error) {
	life, end := context.WithCancel(context.WithoutCancel(caller))
	s := &Stream{
		target: t, out: newOutbox(maxUnsent), end: end,
		heard: make(chan struct{}), done: make(chan struct{}), calls: make(map[string]*streamCall),
	}
	ctx, cancel := context.WithTimeout(caller, dialTimeout)
	defer cancel()
	unhook := context.AfterFunc(ctx, end)
	defer unhook()
	s.owner.Go(func() { s.run(life) })
	select {
	case <-s.heard:
		if unhook() {
			return s, nil
		}
	case <-s.done:
	}
	s.Close()
	switch {
	case caller.Err() != nil:
		return nil, &goneError{t.address, fmt.Errorf("no answer: %w", caller.Err())}
	case ctx.Err() != nil:
		return nil, &goneError{t.address, fmt.Errorf("no answer in %v", dialTimeout)}
	default:
		return nil, s.Err()
	}
}

// Load returns the last load that the server sent.
func (s *Stream) Load() Load { return *s.load.Load() }

// Done is closed when the stream has ended, for any reason.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err returns why the stream has ended, and nil before. It is a sandbox.ErrUnavailable.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the stream and its calls, and waits for them.
func (s *Stream) Close() {
	s.fail(errClosed)
	s.owner.Wait()
}

// Execute implements sandbox.Executor. When the stream ends first, the error is
// sandbox.ErrUnavailable and the program may have run.
func (s *Stream) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	id := req.ID
	if id == "" {
		req.ID = rand.Text() // the wire format needs one
	}
	if err := s.out.wait(ctx); err != nil {
		return sandbox.Result{}, s.refuse(ctx)
	}
	call, err := s.register(ctx, req.ID)
	if err != nil {
		return sandbox.Result{}, err
	}
	if n := s.send(ctx, req); n > maxCallBody {
		s.forget(req.ID, call)
		return outcome(ctx, id, tooLarge("call", maxCallBody))
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		s.cancel(req.ID)
		return sandbox.Result{}, ctx.Err()
	}
	switch {
	case call.err != nil:
		return sandbox.Result{}, call.err
	case call.answer.Error != nil:
		return outcome(ctx, id, call.answer.Error)
	default:
		call.answer.Result.ID = id
		return *call.answer.Result, nil
	}
}

// refuse returns the error for a call that cannot be sent: the time of its caller is over,
// or the stream has ended.
func (s *Stream) refuse(ctx context.Context) error {
	select {
	case <-s.done:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// register adds a call under id. An earlier call with the same ID goes first: the server
// then has the answer for both, or reports that they differ.
func (s *Stream) register(ctx context.Context, id string) (*streamCall, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			return nil, s.refuse(ctx)
		}
		first := s.calls[id]
		if first == nil {
			call := &streamCall{done: make(chan struct{})}
			s.calls[id] = call
			s.mu.Unlock()
			return call, nil
		}
		s.mu.Unlock()
		select {
		case <-first.done:
		case <-ctx.Done():
		}
	}
}

// send queues the call and returns its length; a call that is too long is not sent.
func (s *Stream) send(ctx context.Context, req sandbox.Request) (n int) {
	s.out.put(func(b []byte) []byte {
		start := len(b)
		b = appendRequest(append(b, `{"call":`...), &req)
		if deadline, ok := ctx.Deadline(); ok {
			b = appendInt(b, `,"deadline_ms":`, max(0, time.Until(deadline).Milliseconds()))
		}
		b = append(b, '}')
		if n = len(b) - start; n > maxCallBody {
			return b[:start]
		}
		return b
	})
	return n
}

// cancel tells the server that the caller no longer waits for the call. The call stays
// registered until the server has answered it, so that a later call with the same ID cannot
// get this answer.
func (s *Stream) cancel(id string) {
	s.out.put(func(b []byte) []byte {
		return append(appendString(append(b, `{"cancel":`...), id), '}')
	})
}

// forget removes a call that was not sent.
func (s *Stream) forget(id string, call *streamCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] == call {
		delete(s.calls, id)
		close(call.done)
	}
}

// run makes the request and reads its answer to the end.
func (s *Stream) run(life context.Context) {
	transport := s.target.streamTransport()
	err := s.converse(life, transport)
	s.fail(err)
	transport.CloseIdleConnections()
	s.mu.Lock()
	for id, call := range s.calls {
		call.err = s.err
		delete(s.calls, id)
		close(call.done)
	}
	s.mu.Unlock()
	close(s.done)
}

// fail ends the stream; calls get the first cause.
func (s *Stream) fail(cause error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = &goneError{s.target.address, cause}
	}
	s.mu.Unlock()
	s.end()
	s.out.close()
}

func (s *Stream) converse(life context.Context, transport *http.Transport) (err error) {
	req, err := http.NewRequestWithContext(life, http.MethodPost, s.target.base+PathStream, &body{out: s.out})
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", typeLines)
	req.Header.Set(textHeader, textBase64)
	s.target.authorize(req.Header)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only the bytes that were read matter
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor < 2 {
		return refusal(resp)
	}
	watchdog := time.AfterFunc(silence, func() { s.fail(fmt.Errorf("no word for %v", silence)) })
	defer watchdog.Stop()
	in := &lines{r: resp.Body, limit: maxAnswer, cut: true} // a longer line ends the stream
	for {
		line, tooLong, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("ended by the server")
		case err != nil:
			return err
		case tooLong:
			return fmt.Errorf("an answer is above the limit of %d bytes", maxAnswer)
		}
		watchdog.Reset(silence)
		if err := s.receive(line); err != nil {
			return err
		}
	}
}

// refusal returns the error for a response that does not open a stream.
func refusal(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusHTTPVersionNotSupported:
		return errNoStream
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var f failureBody
	if err != nil || json.Unmarshal(data, &f) != nil || f.Error.Code == "" {
		return fmt.Errorf("unexpected answer %s", resp.Status)
	}
	if f.Error.Code == CodeUnauthorized {
		return fmt.Errorf("%w: %s", errNotAllowed, f.Error.Message)
	}
	return errors.New(f.Error.Message)
}

// receive handles one line from the server.
func (s *Stream) receive(line []byte) error {
	var frame struct { // a ServerFrame with packed texts
		Load *Load  `json:"load,omitempty"`
		ID   string `json:"id"`
		packedAnswer
	}
	if err := unmarshalAnswer(line, &frame); err != nil {
		return fmt.Errorf("frame that cannot be understood: %w", err)
	}
	if frame.Load != nil {
		if !frame.Load.sound() {
			return fmt.Errorf("load that no server has: %+v", *frame.Load)
		}
		if s.load.Swap(frame.Load) == nil {
			close(s.heard)
		}
		return nil
	}
	if frame.Result == nil && frame.Error == nil {
		return errors.New("frame without a result, an error or a load")
	}
	if r := frame.Result; r != nil && r.ID != "" && r.ID != frame.ID {
		return fmt.Errorf("the answer to %.64q is that of %.64q", frame.ID, r.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.calls[frame.ID]
	if call == nil {
		return nil // the caller cancelled it before the server answered
	}
	delete(s.calls, frame.ID)
	call.answer = Answer{Result: frame.Result.unpack(), Error: frame.Error}
	close(call.done)
	return nil
}
