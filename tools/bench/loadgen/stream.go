package loadgen

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"temper/sandbox"
)

const pathStream = "/v1/stream"

// streamTarget sends all calls over one HTTP/2 request and opens another when it
// ends. It is not the client that rollouts use: that one drops a second answer to
// a call, and the point of an audit is to see it.
type streamTarget struct {
	base, token string
	transport   *http.Transport
	audit       audit

	mu  sync.Mutex
	now *stream
}

// Auditor is a Target that sees every answer, also those that nobody waits for.
type Auditor interface {
	Target
	// Surplus counts answers to calls that already had one, or that nobody made.
	Surplus() (duplicated, unasked int)
}

var _ Auditor = (*streamTarget)(nil)

// audit counts the answers to each call.
type audit struct {
	mu                  sync.Mutex
	answered            map[string]bool // false while the answer is awaited
	duplicated, unasked int
}

// asked records that a call was sent, or sent again.
func (a *audit) asked(id string) {
	a.mu.Lock()
	a.answered[id] = false
	a.mu.Unlock()
}

func (a *audit) answer(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch done, known := a.answered[id]; {
	case !known:
		a.unasked++
	case done:
		a.duplicated++
	default:
		a.answered[id] = true
	}
}

// Surplus implements Auditor.
func (t *streamTarget) Surplus() (duplicated, unasked int) {
	t.audit.mu.Lock()
	defer t.audit.mu.Unlock()
	return t.audit.duplicated, t.audit.unasked
}

func newStreamTarget(base string, dial DialFunc, token string) *streamTarget {
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols), ForceAttemptHTTP2: true}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &streamTarget{base: base, token: token, transport: transport, audit: audit{answered: map[string]bool{}}}
}

// Batch implements Target.
func (t *streamTarget) Batch() int { return 1 }

// Close implements Target.
func (t *streamTarget) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.close()
	}
	t.transport.CloseIdleConnections()
}

// Do implements Target.
func (t *streamTarget) Do(ctx context.Context, calls []Call) []Outcome {
	call := calls[0]
	s, err := t.stream(ctx)
	if err != nil {
		return []Outcome{lost(KindNoAnswer, err.Error())}
	}
	answer := make(chan serverFrame, 1)
	if !s.expect(call.ID, answer) {
		return []Outcome{lost(KindNoAnswer, "the stream ended")}
	}
	t.audit.asked(call.ID)
	req := call.request()
	frame := clientFrame{Call: &req}
	if !s.send(ctx, frame) {
		return []Outcome{lost(KindNoAnswer, "the stream ended")}
	}
	select {
	case f := <-answer:
		return []Outcome{f.outcome(call)}
	case <-s.done:
		return []Outcome{lost(KindNoAnswer, "the stream ended: "+s.cause())}
	case <-ctx.Done():
		s.abandon(call.ID)
		return []Outcome{lost(KindGaveUp, ctx.Err().Error())}
	}
}

// stream returns the open stream, or opens one.
func (t *streamTarget) stream(ctx context.Context) (*stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		select {
		case <-t.now.done:
			t.now.close()
		default:
			return t.now, nil
		}
	}
	s, err := openStream(context.WithoutCancel(ctx), t) // it outlives the call that opens it
	if err == nil {
		t.now = s
	}
	return s, err
}

// Frames of the stream.
type clientFrame struct {
	Call   *sandbox.Request `json:"call,omitempty"`
	Cancel string           `json:"cancel,omitempty"`
}

type serverFrame struct {
	ID     string          `json:"id"`
	Result *sandbox.Result `json:"result"`
	Error  *failure        `json:"error"`
}

func (f serverFrame) outcome(call Call) Outcome {
	switch {
	case f.Error != nil:
		return f.Error.outcome("")
	case f.Result != nil:
		return call.judge(*f.Result)
	}
	return lost("undecodable", "a frame without result and error")
}

// stream is one request that carries calls up and answers down.
type stream struct {
	frames chan clientFrame
	done   chan struct{} // closed when either direction has ended
	end    context.CancelFunc
	owner  sync.WaitGroup
	why    atomic.Pointer[error]
	once   sync.Once

	mu      sync.Mutex
	waiting map[string]chan<- serverFrame
}

func openStream(ctx context.Context, t *streamTarget) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx) // ended by close
	up, body := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+pathStream, up)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.transport.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		return nil, errors.Join(fmt.Errorf("open stream: %s", resp.Status), resp.Body.Close())
	}
	s := &stream{
		frames: make(chan clientFrame, 256), done: make(chan struct{}), end: cancel,
		waiting: map[string]chan<- serverFrame{},
	}
	s.owner.Go(func() { s.write(body) })
	s.owner.Go(func() { s.read(resp.Body, &t.audit) })
	return s, nil
}

// close ends the stream and waits for its goroutines.
func (s *stream) close() {
	s.fail(errors.New("closed"))
	s.owner.Wait()
}

func (s *stream) fail(err error) {
	s.once.Do(func() {
		s.why.Store(&err)
		close(s.done)
		s.end()
	})
}

func (s *stream) cause() string { return (*s.why.Load()).Error() }

// expect registers where the answer to id goes. It returns false when the stream
// has ended.
func (s *stream) expect(id string, answer chan<- serverFrame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[id] = answer
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

func (s *stream) send(ctx context.Context, f clientFrame) bool {
	select {
	case s.frames <- f:
		return true
	case <-ctx.Done():
		return true // the caller sees it
	case <-s.done:
		return false
	}
}

// abandon gives up a call. The service is told only when the stream has room.
func (s *stream) abandon(id string) {
	s.mu.Lock()
	delete(s.waiting, id)
	s.mu.Unlock()
	select {
	case s.frames <- clientFrame{Cancel: id}:
	default:
	}
}

// write sends frames, several in one write when they wait.
func (s *stream) write(body *io.PipeWriter) {
	w := bufio.NewWriterSize(body, 64<<10)
	enc := json.NewEncoder(w)
	for {
		select {
		case f := <-s.frames:
			err := enc.Encode(f)
			if err == nil && len(s.frames) == 0 {
				err = w.Flush()
			}
			if err != nil {
				s.fail(fmt.Errorf("send: %w", err))
			}
		case <-s.done:
			_ = body.Close() // the reader of the pipe is gone with the request
			return
		}
	}
}

// read passes answers to their callers until the response ends.
func (s *stream) read(body io.ReadCloser, audit *audit) {
	dec := json.NewDecoder(bufio.NewReaderSize(body, 64<<10))
	for {
		var f serverFrame
		if err := dec.Decode(&f); err != nil {
			s.fail(fmt.Errorf("receive: %w", err))
			_ = body.Close() // nothing more is read of it
			return
		}
		if f.ID == "" {
			continue // a frame that reports the load
		}
		audit.answer(f.ID)
		s.mu.Lock()
		answer := s.waiting[f.ID]
		delete(s.waiting, f.ID)
		s.mu.Unlock()
		if answer != nil {
			answer <- f
		}
	}
}
