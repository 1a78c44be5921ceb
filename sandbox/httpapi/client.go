package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"temper/sandbox"
)

// Times of a Client between attempts to open its stream.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	// noStreamFor is the pause before asking a server without streams again.
	noStreamFor = 10 * time.Second
)

// Client runs calls on one server. It opens a stream with the first call, and again after
// the stream has ended. With a server without streams it makes one request for each call.
// It is safe for concurrent use.
type Client struct {
	target *target
	http   *http.Client

	mu       sync.Mutex
	stream   *Stream
	dialing  *dialing
	failures int       // attempts since the last stream
	next     time.Time // time of the next attempt
	plain    time.Time // until then the server counts as one without streams
	closed   bool
	dials    sync.WaitGroup
}

var _ sandbox.Executor = (*Client)(nil)

// dialing is one attempt, shared by the calls that wait for it; stream and err are valid
// when done is closed.
type dialing struct {
	done   chan struct{}
	cancel context.CancelFunc
	stream *Stream
	err    error
}

// NewClient returns a client of the server at address: host:port, an http or
// https URL, or unix:/path/to/socket. It connects with the first call.
func NewClient(address string, opts Options) (*Client, error) {
	t, err := parseAddress(address, opts)
	if err != nil {
		return nil, err
	}
	return &Client{target: t, http: &http.Client{Transport: t.transport()}}, nil
}

// Execute implements sandbox.Executor. A call whose connection breaks is sent once more:
// the server answers a repeated ID with the first answer, and a call without an ID has no
// effect outside.
func (c *Client) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := c.attempt(ctx, req)
	var gone *goneError
	if err != nil && ctx.Err() == nil && errors.As(err, &gone) {
		res, err = c.attempt(ctx, req)
	}
	if err != nil && ctx.Err() != nil {
		return sandbox.Result{}, ctx.Err()
	}
	return res, err
}

func (c *Client) attempt(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	stream, err := c.connect(ctx)
	switch {
	case err == nil:
		return stream.Execute(ctx, req)
	case errors.Is(err, errNoStream):
		return c.executePlain(ctx, req)
	default:
		return sandbox.Result{}, err
	}
}

// connect returns the stream and opens it if there is none.
func (c *Client) connect(ctx context.Context) (*Stream, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, fmt.Errorf("%w: client of %s: %w", sandbox.ErrUnavailable, c.target.address, errClosed)
	}
	if s := c.stream; s != nil && s.Err() == nil {
		c.mu.Unlock()
		return s, nil
	}
	if time.Now().Before(c.plain) {
		c.mu.Unlock()
		return nil, errNoStream
	}
	if c.dialing == nil {
		c.dial(ctx)
	}
	d := c.dialing
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.stream, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial starts an attempt, which outlives the call that starts it.
func (c *Client) dial(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &dialing{done: make(chan struct{}), cancel: cancel}
	pause := time.Until(c.next)
	c.dialing = d
	c.dials.Go(func() {
		defer cancel()
		if sleep(ctx, pause) == nil {
			d.stream, d.err = c.open(ctx)
		} else {
			d.err = &goneError{c.target.address, errClosed}
		}
		c.dialed(d)
	})
}

// open dials. A server that accepts the connection and does not speak HTTP/2 on it may
// still answer requests.
func (c *Client) open(ctx context.Context) (*Stream, error) {
	stream, err := dial(ctx, c.target)
	var connect *net.OpError
	if err == nil || errors.Is(err, errNoStream) || errors.As(err, &connect) && connect.Op == "dial" {
		return stream, err
	}
	if !errors.Is(err, errNotAllowed) && c.answers(ctx) {
		err = errNoStream
	}
	return nil, err
}

// answers reports whether the server responds to a request at all.
func (c *Client) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.base+PathHealth, nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // it is not read
	return true
}

// dialed stores the result of an attempt.
func (c *Client) dialed(d *dialing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing = nil
	switch {
	case d.err == nil:
		c.stream, c.failures = d.stream, 0
	case errors.Is(d.err, errNoStream):
		c.plain = time.Now().Add(noStreamFor)
	default:
		c.failures++
	}
	// A stream that ends at once also counts as a failure and delays the next one.
	c.next = time.Now().Add(min(firstPause<<min(c.failures, 10), lastPause))
	close(d.done)
}

// sleep waits for d. It returns an error when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// executePlain makes one request for one call.
func (c *Client) executePlain(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	var res packedResult
	f, err := c.post(ctx, PathExecute, appendRequest(nil, &req), &res)
	switch {
	case err != nil:
		return sandbox.Result{}, err
	case f != nil:
		return outcome(ctx, req.ID, f)
	default:
		return *res.unpack(), nil
	}
}

// ExecuteBatch runs up to MaxBatch calls in one request. It returns the results and errors
// that Execute would return, in the order of reqs.
func (c *Client) ExecuteBatch(ctx context.Context, reqs []sandbox.Request) ([]sandbox.Result, []error) {
	results, errs := make([]sandbox.Result, len(reqs)), make([]error, len(reqs))
	body := []byte(`{"calls":[`)
	for i := range reqs {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendRequest(body, &reqs[i])
	}
	var answer struct { // a BatchAnswer with packed texts
		Answers []packedAnswer `json:"answers"`
	}
	f, err := c.post(ctx, PathBatch, append(body, "]}"...), &answer)
	var gone *goneError
	if errors.As(err, &gone) && ctx.Err() == nil {
		f, err = c.post(ctx, PathBatch, append(body, "]}"...), &answer)
	}
	if err == nil && f == nil && len(answer.Answers) != len(reqs) {
		err = fmt.Errorf("%w: %d answers to %d calls", sandbox.ErrUnavailable, len(answer.Answers), len(reqs))
	}
	for i, req := range reqs {
		switch {
		case err != nil:
			errs[i] = err
		case f != nil:
			results[i], errs[i] = outcome(ctx, req.ID, f)
		case answer.Answers[i].Error != nil:
			results[i], errs[i] = outcome(ctx, req.ID, answer.Answers[i].Error)
		case answer.Answers[i].Result != nil:
			results[i] = *answer.Answers[i].Result.unpack()
		default:
			errs[i] = fmt.Errorf("%w: empty answer", sandbox.ErrUnavailable)
		}
	}
	return results, errs
}

// Health returns nil when the server answers.
func (c *Client) Health(ctx context.Context) error {
	return c.get(ctx, PathHealth, &struct{}{})
}

// Status decodes the server's status into v.
func (c *Client) Status(ctx context.Context, v any) error {
	return c.get(ctx, PathStatus, v)
}

// CloseSession ends a session of run, which is empty for calls without a run, and reports
// whether the session existed.
func (c *Client) CloseSession(ctx context.Context, run, name string) (bool, error) {
	path := PathSessions + url.PathEscape(name)
	if run != "" {
		path += "?" + url.Values{"run": {run}}.Encode()
	}
	f, err := c.once(ctx, http.MethodDelete, path, nil, nil)
	switch {
	case err != nil:
		return false, err
	case f != nil && f.Code == CodeNotFound:
		return false, nil
	case f != nil:
		_, err := outcome(ctx, "", f)
		return false, err
	default:
		return true, nil
	}
}

// Close ends the stream and its calls and drops the idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	if c.dialing != nil {
		c.dialing.cancel()
	}
	c.mu.Unlock()
	c.dials.Wait()
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	if stream != nil {
		stream.Close()
	}
	c.http.CloseIdleConnections()
}

// post sends calls. A Failure is an answer of the server; an error means that there was no
// answer.
func (c *Client) post(ctx context.Context, path string, body []byte, out any) (*Failure, error) {
	f, err := c.once(ctx, http.MethodPost, path, body, out)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return f, err
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	f, err := c.once(ctx, http.MethodGet, path, nil, out)
	if err == nil && f != nil {
		err = fmt.Errorf("%w: %s", sandbox.ErrUnavailable, f.Message)
	}
	return err
}

// once makes one request. Its errors are goneErrors.
func (c *Client) once(ctx context.Context, method, path string, body []byte, out any) (*Failure, error) {
	f, err := c.request(ctx, method, path, body, out)
	if err != nil {
		return nil, &goneError{c.target.address, err}
	}
	return f, nil
}

func (c *Client) request(ctx context.Context, method, path string, body []byte, out any) (_ *Failure, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.target.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", typeJSON)
	}
	req.Header.Set(textHeader, textBase64)
	c.target.authorize(req.Header)
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline).Milliseconds())
		req.Header.Set(deadlineHeader, strconv.FormatInt(left, 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read response: %w", err)
	case resp.StatusCode == http.StatusNoContent:
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return refused(resp, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("decode response: %w", err)
	}
	return nil, nil
}

// refused decodes the Failure of a response. A proxy between client and server may answer
// 429 with another body.
func refused(resp *http.Response, data []byte) (*Failure, error) {
	var body failureBody
	if json.Unmarshal(data, &body) != nil || body.Error.Code == "" {
		if resp.StatusCode != http.StatusTooManyRequests {
			return nil, fmt.Errorf("unexpected answer %s", resp.Status)
		}
		body.Error = Failure{Code: CodeOverloaded, Message: resp.Status}
	}
	seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32)
	if f := &body.Error; err == nil && f.Code == CodeOverloaded && f.RetryAfterMS == 0 {
		f.RetryAfterMS = seconds * 1000
	}
	return &body.Error, nil
}
