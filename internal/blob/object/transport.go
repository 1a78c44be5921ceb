package object

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"temper/internal/blob"
)

const (
	dialTimeout = 10 * time.Second
	// idleConnections lets several concurrent blobs keep their connections.
	idleConnections = 64
	// writeChunk is the number of bytes that are sent under one deadline.
	writeChunk = 64 << 10
)

// Transport returns an HTTP transport with the settings of Tune.
func Transport(stall time.Duration, ca string) (*http.Transport, error) {
	pool, err := Trust(ca)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{}
	Tune(t, stall, pool)
	return t, nil
}

// Tune makes the connections of a transport fail if no byte moves on them for the stall
// time, however long the whole transfer takes. 0 is DefaultStall. pool holds the
// certificates to trust, nil for the system's.
func Tune(t *http.Transport, stall time.Duration, pool *x509.CertPool) {
	if stall == 0 {
		stall = DefaultStall
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	t.Proxy = http.ProxyFromEnvironment
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: c, stall: stall}, nil
	}
	t.TLSHandshakeTimeout, t.ExpectContinueTimeout, t.IdleConnTimeout = dialTimeout, time.Second, stall
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
	t.WriteBufferSize, t.ReadBufferSize = writeChunk, writeChunk
	t.DisableCompression = true // ranges and checksums are of the stored bytes
	t.ForceAttemptHTTP2 = false
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// Trust returns the system's certificates and those of the file ca; nil for "".
func Trust(ca string) (*x509.CertPool, error) {
	if ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("certificates to trust (ca=): %w: %w", blob.ErrMisconfigured, err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificates to trust (ca=): %s holds no PEM certificate: %w", ca, blob.ErrMisconfigured)
	}
	return pool, nil
}

// watchedConn extends its deadline with every byte that moves in either direction: while a
// body is sent nothing is read, and vice versa.
type watchedConn struct {
	net.Conn
	stall time.Duration
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (sent int, err error) {
	for len(p) > 0 && err == nil {
		if err = c.SetDeadline(time.Now().Add(c.stall)); err != nil {
			return sent, err
		}
		var n int
		n, err = c.Conn.Write(p[:min(len(p), writeChunk)])
		sent, p = sent+n, p[n:]
	}
	return sent, err
}
