package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options say how a client reaches engines.
type Options struct {
	// Token is sent as a bearer token; empty for none.
	Token string
	// TLS of https addresses; nil trusts the roots of the system.
	TLS *tls.Config
}

// caller sends requests to one engine. HTTP/1.1 gives each generation a separate connection,
// so that the end of either side ends that one generation, and idle
// connections are kept.
type caller struct {
	address string // as it was given, for messages
	base    string
	token   string
	client  *http.Client
	doubt   func(error) // is called with each ErrGarbage; nil is fine
}

const (
	dialTime = 5 * time.Second
	// keepIdle is the number of idle connections; more than a process has generations
	// on one engine.
	keepIdle = 1024
	// attempts is how often a request is sent when connections break. An engine that
	// was killed refuses connections at once, so that its death is known soon.
	attempts = 3
	// maxAnswer bounds an answer beyond what a generation needs.
	maxAnswer = 64 << 20
)

// unixPrefix marks an address as the path of a socket.
const unixPrefix = "unix:"

// CheckAddress refuses what is no address of an engine.
func CheckAddress(address string) error {
	_, _, err := parseAddress(address)
	return err
}

func parseAddress(address string) (base, socket string, err error) {
	if path, isUnix := strings.CutPrefix(address, unixPrefix); isUnix {
		if path == "" {
			return "", "", fmt.Errorf("engine address %q: names no socket", address)
		}
		return "http://engine", path, nil
	}
	if !strings.Contains(address, "://") {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return "", "", fmt.Errorf("engine address %q: want host:port, a URL or unix:/path", address)
		}
		return "http://" + address, "", nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return "", "", fmt.Errorf("engine address %q: want host:port, an http or https URL, or unix:/path", address)
	}
	return strings.TrimRight(address, "/"), "", nil
}

func newCaller(address string, o Options) (*caller, error) {
	base, socket, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 5 * time.Second}
	dial := dialer.DialContext
	if socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	transport := &http.Transport{
		DialContext: dial, TLSHandshakeTimeout: dialTime, MaxIdleConnsPerHost: keepIdle, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	return &caller{address: address, base: base, token: o.Token, client: &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { // the token is for this address alone
			return errors.New("an engine does not redirect")
		},
	}}, nil
}

func (c *caller) close() { c.client.CloseIdleConnections() }

func (c *caller) get(ctx context.Context, path string, out any) error {
	return c.retry(ctx, http.MethodGet, path, nil, out)
}

func (c *caller) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return c.retry(ctx, http.MethodPost, path, body, out)
}

// retry sends a request until there is an answer. Every request may be sent twice: the
// second has the effect and the answer of the first.
func (c *caller) retry(ctx context.Context, method, path string, body []byte, out any) error {
	pause := 20 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := c.send(ctx, method, path, body, out)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case IsRefusal(err):
			return fmt.Errorf("engine %s: %w", c.address, err)
		case errors.Is(err, ErrGarbage):
			return c.garbage(err)
		case attempt == attempts:
			return fmt.Errorf("engine %s does not answer: %w", c.address, withoutURL(err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause *= 4
	}
}

// garbage wraps the error of an answer that cannot be true with the engine's address, and
// reports it to doubt.
func (c *caller) garbage(err error) error {
	if !errors.Is(err, ErrGarbage) {
		err = fmt.Errorf("%w: %w", ErrGarbage, err)
	}
	err = fmt.Errorf("engine %s: %w", c.address, err)
	if c.doubt != nil {
		c.doubt(err)
	}
	return err
}

func (c *caller) send(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read, or the connection is given up
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(data) > maxAnswer {
		return fmt.Errorf("%w: an answer of more than %d bytes", ErrGarbage, maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		return ReadFailure(resp.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrGarbage, path, err)
	}
	return nil
}

// withoutURL drops the address that an error of net/http repeats.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
