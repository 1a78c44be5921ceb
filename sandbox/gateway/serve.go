package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"temper/sandbox/httpapi"
	"temper/sandbox/server"
)

// Service describes a gateway process. Only Listen has no default.
type Service struct {
	// Config is the scheduler's. Serve sets its Dial and its Logger.
	Config
	// Listen is host:port, or unix:/path of a socket.
	Listen string
	// Token, when set, must come with every request, and goes to the nodes.
	Token string
	// Insecure allows an address that other machines can reach without a token.
	Insecure bool
	// TLS names the files of the gateway's certificate; NodeTLS is how it trusts
	// the nodes, nil for the authorities of the machine.
	TLS     server.TLSFiles
	NodeTLS *tls.Config
	// Drain is how long calls may go on after ctx ends; 10 s when zero.
	Drain time.Duration
	// Mount returns more handlers, by pattern of http.ServeMux, which a token guards too.
	Mount func(*Gateway) map[string]http.Handler
	// OnReady is told the address when the gateway takes calls.
	OnReady func(address string)
}

// Serve runs a gateway until ctx ends, then drains it. It answers the API of a
// node, and the list of nodes at PathNodes.
func Serve(ctx context.Context, cfg Service, logger *slog.Logger) (err error) {
	cfg.Logger = logger
	cfg.Dial = func(ctx context.Context, address string) (Link, error) {
		return dial(ctx, address, httpapi.Options{Token: cfg.Token, TLS: nodeTLS(cfg.NodeTLS, address)})
	}
	srv, err := server.New(server.Config{
		Listen: cfg.Listen, Token: cfg.Token, Insecure: cfg.Insecure, TLS: cfg.TLS, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	g, err := New(ctx, cfg.Config)
	if err != nil {
		return err
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 10 * time.Second
	}
	err = srv.Serve(ctx, handler(g, cfg, logger), server.Life{
		Ready: func() {
			if cfg.OnReady != nil {
				cfg.OnReady(srv.Address())
			}
		},
		Drain: g.Drain, Finish: g.Close, Timeout: cfg.Drain,
	})
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("gateway: calls were given up after the drain time of %v", cfg.Drain)
	}
	return err
}

// nodeLink carries calls on one stream; the rare end of a session is a request
// of its own.
type nodeLink struct {
	*httpapi.Stream
	client *httpapi.Client
}

var (
	_ Link          = (*nodeLink)(nil)
	_ SessionCloser = (*nodeLink)(nil)
)

func dial(ctx context.Context, address string, opts httpapi.Options) (Link, error) {
	client, err := httpapi.NewClient(address, opts)
	if err != nil {
		return nil, err
	}
	stream, err := httpapi.Dial(ctx, address, opts)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &nodeLink{Stream: stream, client: client}, nil
}

func (l *nodeLink) CloseSession(ctx context.Context, name string) (bool, error) {
	return l.client.CloseSession(ctx, name)
}

func (l *nodeLink) Close() {
	l.Stream.Close()
	l.client.Close()
}

// nodeTLS keeps plain HTTP for addresses that name no scheme: the configuration
// is that of the nodes which have certificates.
func nodeTLS(config *tls.Config, address string) *tls.Config {
	if isTLS(address) {
		return config
	}
	return nil
}

func handler(g *Gateway, cfg Service, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.NewHandler(g, httpapi.Config{
		Token: cfg.Token, Logger: logger, Load: g.Load, CloseSession: g.CloseSession,
		Status: func() any { return g.Stats() },
	}))
	g.route(mux)
	if cfg.Mount != nil {
		for pattern, h := range cfg.Mount(g) {
			mux.Handle(pattern, h)
		}
	}
	return mux
}
