package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"temper/sandbox/httpapi"
)

// joinTimeout bounds one request, so that a gateway that hangs costs no lease.
const joinTimeout = 3 * time.Second

// refusedError is the answer of a gateway to a node that it will never take.
type refusedError struct {
	status  string
	message string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("gateway refused the node: %s: %s", e.status, e.message)
}

// Join lists the node at selfAddress with the gateway and keeps it listed until
// ctx ends, then unlists it and returns nil. A gateway that does not answer is
// asked again every Rejoin; one that refuses the address or the token ends Join
// with an error. An https gateway is trusted by the authorities of the machine.
func Join(ctx context.Context, gatewayURL, selfAddress, token string, logger *slog.Logger) error {
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
	transport := &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * Rejoin}
	defer transport.CloseIdleConnections()
	j := &joiner{base: base, self: self, token: token, http: &http.Client{
		Transport: transport, Timeout: joinTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return j.stay(ctx, logger.With("gateway", base, "node", self))
}

type joiner struct {
	base, self, token string
	http              *http.Client
}

// stay repeats the word of the node until ctx ends.
func (j *joiner) stay(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(Rejoin)
	defer ticker.Stop()
	listed, silent := false, false
	for {
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
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !listed {
				return nil
			}
			// The gateway sees the drain on the stream too; this is the polite way.
			if err := j.delete(context.WithoutCancel(ctx)); err != nil {
				log.Debug("leave gateway", "err", err)
			}
			return nil
		}
	}
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
