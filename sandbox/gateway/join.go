package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"temper/sandbox/httpapi"
)

// joinTimeout bounds one request, so that a gateway that does not answer cannot cost a
// lease.
const joinTimeout = 3 * time.Second

// refusedError is the answer of a gateway that will never take the node.
type refusedError struct {
	status  string
	message string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("gateway refused the node: %s: %s", e.status, e.message)
}

// Join lists the node at selfAddress with the gateway and keeps it listed until ctx ends,
// then unlists it and returns nil. It notices the death of a gateway at once, by the end of
// its connection, and asks again with pauses that grow to joinBackoff. A gateway that
// refuses the address or the token ends Join with an error. config decides which gateways
// with an https address the node trusts and how it identifies itself; nil uses the
// authorities of the machine.
func Join(ctx context.Context, gatewayURL, selfAddress, token string, config *tls.Config, logger *slog.Logger) error {
	base, err := parseAddress(gatewayURL)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	self, err := parseAddress(selfAddress)
	if err != nil {
		return err
	}
	if !isTLS(base) {
		base = "http://" + base
	}
	j := &joiner{base: base, self: self, token: token, lost: make(chan struct{}, 1)}
	transport := &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * Rejoin, DialContext: j.dial, TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	j.http = &http.Client{
		Transport: transport, Timeout: joinTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return j.keepListed(ctx, logger.With("gateway", base, "node", self))
}

type joiner struct {
	base, self, token string
	http              *http.Client
	lost              chan struct{} // signals the end of a connection; of capacity 1
}

// watchedConn notices the end of a connection even while no request waits: the transport
// reads from an idle connection, too.
type watchedConn struct {
	net.Conn
	lost chan<- struct{}
}

func (c watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		select {
		case c.lost <- struct{}{}:
		default:
		}
	}
	return n, err
}

func (j *joiner) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return watchedConn{conn, j.lost}, nil
}

// joinBackoff is the longest pause between two requests to a gateway that does not answer.
const joinBackoff = time.Second

// keepListed renews the listing of the node until ctx ends.
func (j *joiner) keepListed(ctx context.Context, log *slog.Logger) error {
	listed, silent := false, false
	pause := firstBackoff
	for {
		select {
		case <-j.lost: // from the previous connection
		default:
		}
		err := j.post(ctx)
		var refused *refusedError
		switch {
		case errors.As(err, &refused):
			return err
		case err != nil && ctx.Err() == nil && !silent:
			log.Warn("gateway does not answer", "err", err)
			silent = true
		case err == nil && (!listed || silent):
			log.Info("sandbox node has joined")
			listed, silent = true, false
		}
		pause = j.waitToPost(ctx, err == nil, pause)
		if ctx.Err() == nil {
			continue
		}
		if !listed {
			return nil
		}
		// The gateway also notices the drain on the stream; the request is faster.
		if err := j.delete(context.WithoutCancel(ctx)); err != nil {
			log.Debug("leave gateway", "err", err)
		}
		return nil
	}
}

// waitToPost waits until the next request to the gateway, and returns the next pause after
// a failure or a lost connection. The pauses grow for a server that ends every connection.
func (j *joiner) waitToPost(ctx context.Context, answered bool, pause time.Duration) time.Duration {
	if answered {
		select {
		case <-ctx.Done():
			return pause
		case <-time.After(Rejoin):
			return firstBackoff
		case <-j.lost:
		}
	} else {
		pause = min(pause, joinBackoff)
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return min(2*pause, Rejoin)
}

func (j *joiner) post(ctx context.Context) error {
	body, err := json.Marshal(NodeAddress{Address: j.self})
	if err != nil {
		return err
	}
	return j.do(ctx, http.MethodPost, j.base+PathNodes, body)
}

func (j *joiner) delete(ctx context.Context) error {
	return j.do(ctx, http.MethodDelete, j.base+PathNodes+"/"+url.PathEscape(j.self), nil)
}

func (j *joiner) do(ctx context.Context, method, target string, body []byte) (err error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if j.token != "" {
		req.Header.Set("Authorization", "Bearer "+j.token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := j.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAddressBody))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests:
		var said struct {
			Error httpapi.Failure `json:"error"`
		}
		if json.Unmarshal(text, &said) != nil || said.Error.Message == "" {
			said.Error.Message = "no reason given"
		}
		return &refusedError{status: resp.Status, message: said.Error.Message}
	default:
		return fmt.Errorf("unexpected answer %s", resp.Status)
	}
}

func isTLS(address string) bool { return strings.HasPrefix(address, "https://") }
