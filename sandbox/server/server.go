// Package server holds the network side of a sandbox node and a gateway:
// the listener, TLS, the bearer token, HTTP/1.1 and HTTP/2 on one port, the order
// of a graceful shutdown, and the ready line. It knows neither calls nor executors.
//
// Invariant: a listener that other machines can reach requires a token, unless
// the operator has allowed it to do without.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"temper/sandbox/httpapi"
)

// Config configures the listener and its callers. Only Listen has no default.
type Config struct {
	// Listen is host:port, or unix:/path of a socket.
	Listen string
	// Token, when set, is required as a bearer token with every request except those
	// for the health of the process.
	Token string
	// Tokens, when set, returns the tokens that replace Token for requests for a
	// path. Without tokens and Token, the path is open to local programs.
	Tokens func(path string) []string
	// Insecure allows an address that other machines can reach without a token.
	Insecure bool
	// TLS names the files of the server's certificate; the zero value serves
	// without TLS.
	TLS TLSFiles
	// Logger receives errors of connections; nil discards them.
	Logger *slog.Logger
}

// Check returns all the errors of New that need no listener. It does not detect a port that
// is in use or not allowed.
func (c Config) Check() error {
	_, err := c.TLS.Server(slog.New(slog.DiscardHandler))
	if !strings.HasPrefix(c.Listen, httpapi.UnixPrefix) {
		_, aerr := c.resolve()
		err = errors.Join(aerr, err)
	}
	return err
}

// Server is an open listener. It answers nothing before Serve.
type Server struct {
	cfg      Config
	listener net.Listener
	tls      *tls.Config // nil without TLS
}

// New reads the certificates and opens the listener. The error is one line that names the
// unusable setting. The caller calls Serve or Close.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	config, err := cfg.TLS.Server(cfg.Logger)
	if err != nil {
		return nil, err
	}
	l, err := listen(cfg)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, listener: l, tls: config}, nil
}

// Address returns the address of the listener: host:port or unix:/path.
func (s *Server) Address() string {
	if s.isUnix() {
		return httpapi.UnixPrefix + s.listener.Addr().String()
	}
	return s.listener.Addr().String()
}

// URL returns the address with its scheme; unix:/path stays unchanged.
func (s *Server) URL() string {
	switch {
	case s.isUnix():
		return s.Address()
	case s.tls != nil:
		return "https://" + s.Address()
	default:
		return "http://" + s.Address()
	}
}

func (s *Server) isUnix() bool { return s.listener.Addr().Network() == "unix" }

// Close closes a server without Serve; after Serve it does nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Hooks are called by Serve at the stages of a server. Every field is optional.
type Hooks struct {
	// Ready is called just before the server answers requests.
	Ready func()
	// Drain announces, without waiting, that the server takes no new work.
	Drain func()
	// Finish waits until the work inside is done, or its context has ended.
	Finish func(context.Context) error
	// Timeout bounds Finish; 10 s when zero.
	Timeout time.Duration
}

// Limits of every connection. Bodies and answers have no time limit
// here: a stream lives as long as its client.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 64 << 10
	// A peer that answers no ping or reads no byte within these times is gone.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	writeStall  = 30 * time.Second
	maxStreams  = 1024 // requests at a time on one HTTP/2 connection
	// lastWords is how long handlers may write their answers after all work
	// is done; streams that are still open after that are closed.
	lastWords = 2 * time.Second
)

// Serve answers requests until ctx ends. Then it announces the drain, waits for the work
// inside, lets handlers write their answers and closes. Meanwhile handler still gets new
// requests and refuses them. Serve returns nil when all work was finished, and an error
// that wraps context.DeadlineExceeded when Finish ran out of time.
func (s *Server) Serve(ctx context.Context, handler http.Handler, hooks Hooks) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	hs := s.http(base, handler)
	failed := make(chan error, 1)
	go func() { failed <- s.accept(hs) }()
	if hooks.Ready != nil {
		hooks.Ready()
	}
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve %s: %w", s.Address(), err)
	case <-ctx.Done():
	}
	if hooks.Drain != nil {
		hooks.Drain()
	}
	if hooks.Finish != nil {
		if hooks.Timeout <= 0 {
			hooks.Timeout = 10 * time.Second
		}
		inside, cancel := context.WithTimeout(base, hooks.Timeout)
		defer cancel()
		err = errors.Join(err, hooks.Finish(inside))
	}
	return errors.Join(err, shutdown(base, hs, cut))
}

func (s *Server) http(base context.Context, handler http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.guard(handler),
		TLSConfig:         s.tls,
		Protocols:         &protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(quiet{s.cfg.Logger.Handler()}, slog.LevelWarn),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeStall,
		},
	}
}

func (s *Server) accept(hs *http.Server) error {
	if s.tls != nil {
		return hs.ServeTLS(s.listener, "", "")
	}
	return hs.Serve(s.listener)
}

// shutdown ends a server whose work is done. Idle streams would block it for ever, so they
// are asked to end, then closed: no answer is pending on them.
func shutdown(ctx context.Context, hs *http.Server, cut context.CancelFunc) error {
	for _, step := range []func(){func() {}, cut} {
		step()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		err := hs.Shutdown(grace)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return hs.Close()
}

// quiet lowers errors that any client can cause, such as broken handshakes, to debug level.
type quiet struct{ slog.Handler }

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if isNoise(r.Message) {
		if !q.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return q.Handler.Handle(ctx, r)
}
