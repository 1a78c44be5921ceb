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
	"strconv"
	"strings"
	"time"

	"temper/sandbox"
)

// Client runs calls on one node. It is safe for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
}

var _ sandbox.Executor = (*Client)(nil)

// UnixPrefix marks an address as the path of a Unix socket.
const UnixPrefix = "unix:"

// NewClient returns a client of the node at address: host:port, an http or
// https URL, or unix:/path/to/socket. The token may be empty.
func NewClient(address, token string) (*Client, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		MaxIdleConns:        0, // bounded for each host only, and there is one
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
	}
	c := &Client{token: token, http: &http.Client{Transport: transport}}
	path, isUnix := strings.CutPrefix(address, UnixPrefix)
	switch {
	case address == "" || isUnix && path == "":
		return nil, fmt.Errorf("sandbox address %q: empty", address)
	case isUnix:
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		c.base = "http://sandbox"
	case strings.HasPrefix(address, "http://"), strings.HasPrefix(address, "https://"):
		c.base = strings.TrimRight(address, "/")
	default:
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("sandbox address %q: %w", address, err)
		}
		c.base = "http://" + address
	}
	return c, nil
}

// Execute implements sandbox.Executor.
func (c *Client) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	var res sandbox.Result
	failure, err := c.post(ctx, PathExecute, req, &res)
	if err != nil {
		return sandbox.Result{}, err
	}
	if failure != nil {
		return outcome(ctx, req.ID, *failure)
	}
	return res, nil
}

// ExecuteBatch runs up to MaxBatch calls in one request. The results and errors
// are those that Execute would have given, in the order of reqs.
func (c *Client) ExecuteBatch(ctx context.Context, reqs []sandbox.Request) ([]sandbox.Result, []error) {
	results, errs := make([]sandbox.Result, len(reqs)), make([]error, len(reqs))
	var answer BatchAnswer
	failure, err := c.post(ctx, PathBatch, Batch{Calls: reqs}, &answer)
	if err == nil && failure == nil && len(answer.Answers) != len(reqs) {
		err = fmt.Errorf("%w: %d answers to %d calls", sandbox.ErrUnavailable, len(answer.Answers), len(reqs))
	}
	for i, req := range reqs {
		switch {
		case err != nil:
			errs[i] = err
		case failure != nil:
			results[i], errs[i] = outcome(ctx, req.ID, *failure)
		case answer.Answers[i].Error != nil:
			results[i], errs[i] = outcome(ctx, req.ID, *answer.Answers[i].Error)
		case answer.Answers[i].Result != nil:
			results[i] = *answer.Answers[i].Result
		default:
			errs[i] = fmt.Errorf("%w: empty answer", sandbox.ErrUnavailable)
		}
	}
	return results, errs
}

// Health returns nil when the node answers.
func (c *Client) Health(ctx context.Context) error {
	return c.get(ctx, PathHealth, &struct{}{})
}

// Status decodes the node's status into v.
func (c *Client) Status(ctx context.Context, v any) error {
	return c.get(ctx, PathStatus, v)
}

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// outcome turns a Failure into what Execute returns.
func outcome(ctx context.Context, id string, f Failure) (sandbox.Result, error) {
	switch f.Code {
	case CodeInvalid, CodeTooLarge:
		return sandbox.Result{ID: id, Status: sandbox.StatusRefused, Reason: f.Message}, nil
	case CodeOverloaded:
		// The message of the node starts with the text of the same sentinel.
		_, detail, _ := strings.Cut(f.Message, ": ")
		return sandbox.Result{}, fmt.Errorf("%w: %s", sandbox.ErrOverloaded, detail)
	case CodeDeadline:
		if ctx.Err() != nil {
			return sandbox.Result{}, ctx.Err()
		}
		return sandbox.Result{}, context.DeadlineExceeded
	case CodeUnauthorized, CodeUnavailable:
	}
	return sandbox.Result{}, fmt.Errorf("%w: %s", sandbox.ErrUnavailable, f.Message)
}

// post sends a call, once more when the connection fails: the node answers a
// repeated ID with the first answer, and a call without one has no effect outside.
func (c *Client) post(ctx context.Context, path string, in, out any) (*Failure, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode call: %w", err)
	}
	failure, err := c.once(ctx, http.MethodPost, path, body, out)
	if err != nil && ctx.Err() == nil {
		failure, err = c.once(ctx, http.MethodPost, path, body, out)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	return failure, nil
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	failure, err := c.once(ctx, http.MethodGet, path, nil, out)
	if err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	if failure != nil {
		return fmt.Errorf("%w: %s", sandbox.ErrUnavailable, failure.Message)
	}
	return nil
}

// once makes one request. A Failure is an answer of the node; an error means
// that there was no answer.
func (c *Client) once(ctx context.Context, method, path string, body []byte, out any) (_ *Failure, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline).Milliseconds())
		req.Header.Set(deadlineHeader, strconv.FormatInt(left, 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 2*maxBatchBody))
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, fmt.Errorf("decode response: %w", err)
		}
		return nil, nil
	}
	var f failureBody
	if json.Unmarshal(data, &f) != nil || f.Error.Code == "" {
		return nil, fmt.Errorf("unexpected answer %s", resp.Status)
	}
	return &f.Error, nil
}
