package httpapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// UnixPrefix marks an address as the path of a Unix socket.
const UnixPrefix = "unix:"

// Options configure the connection of a client to a server.
type Options struct {
	// Token is sent as a bearer token with every request; empty for none.
	Token string
	// TLS, when set, is also used for addresses without a scheme. An https
	// address without it trusts the roots of the system.
	TLS *tls.Config
}

// target is a parsed address.
type target struct {
	address string // as given, for messages
	base    string // scheme and host of URLs
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	opts    Options
}

// parseAddress parses host:port, an http or https URL, or unix:/path/to/socket.
func parseAddress(address string, opts Options) (*target, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	t := &target{address: address, dial: dialer.DialContext, opts: opts}
	scheme := "http://"
	if opts.TLS != nil {
		scheme = "https://"
	}
	path, isUnix := strings.CutPrefix(address, UnixPrefix)
	switch {
	case address == "" || isUnix && path == "":
		return nil, fmt.Errorf("sandbox address %q: empty", address)
	case isUnix:
		t.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		t.base = scheme + "sandbox"
	case strings.HasPrefix(address, "https://"):
		t.base = strings.TrimRight(address, "/")
	case strings.HasPrefix(address, "http://") && opts.TLS != nil:
		return nil, fmt.Errorf("sandbox address %q: http with TLS settings", address)
	case strings.HasPrefix(address, "http://"):
		t.base = strings.TrimRight(address, "/")
	default:
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("sandbox address %q: %w", address, err)
		}
		t.base = scheme + address
	}
	return t, nil
}

// transport returns a transport for short requests, over HTTP/1.1.
func (t *target) transport() *http.Transport {
	return &http.Transport{
		DialContext:         t.dial,
		TLSClientConfig:     t.tls(),
		MaxIdleConnsPerHost: 1024, // the only bound: there is one host
		IdleConnTimeout:     90 * time.Second,
	}
}

// streamTransport returns a transport for one stream. Without TLS the server
// has to speak HTTP/2 from the first byte.
func (t *target) streamTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	if !strings.HasPrefix(t.base, "https://") {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true) // lets the server answer that it has no HTTP/2
	}
	return &http.Transport{
		DialContext:         t.dial,
		TLSClientConfig:     t.tls(),
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: silence, PingTimeout: silence, // the server sends its load every second
			MaxReadFrameSize: 1 << 20,
		},
	}
}

func (t *target) tls() *tls.Config {
	if t.opts.TLS == nil {
		return nil
	}
	return t.opts.TLS.Clone()
}

// authorize adds the token.
func (t *target) authorize(h http.Header) {
	if t.opts.Token != "" {
		h.Set("Authorization", "Bearer "+t.opts.Token)
	}
}
