package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
	"temper/sandbox/httpapi"
	"temper/sandbox/server"
)

// Service configures a gateway process. Only Server.Listen has no default.
type Service struct {
	// Config configures the gateway. Serve sets its Dial and its Logger.
	Config
	// Server configures the listener and its callers.
	Server server.Config
	// NodeToken lists and unlists nodes, and is sent to the nodes: a caller of programs
	// must not be able to join and see the programs of others. Without it no node may join,
	// and the nodes of the configuration get the token of Server.
	NodeToken string
	// Build is the version of the program in the log.
	Build string
	// NodeTLS decides which nodes with an https address the gateway trusts and how it
	// identifies itself; nil uses the authorities of the machine.
	NodeTLS *tls.Config
	// Budget bounds the bodies and answers that the API holds besides QueueBytes;
	// budget.New(0) when nil.
	Budget *budget.Budget
	// Drain is how long calls may continue after ctx ends; 10 s when zero.
	Drain time.Duration
	// Mount returns the executor of the API, the gateway or a wrapper
	// around it, and more handlers by pattern of http.ServeMux. The listener checks
	// their callers.
	Mount func(*Gateway) (sandbox.Executor, map[string]http.Handler)
	// OnReady is called once, when the gateway takes calls.
	OnReady func(Ready)
}

// Ready describes a gateway that takes calls, perhaps before its nodes.
type Ready struct {
	Address string // host:port or unix:/path
	URL     string // the same with its scheme
	Nodes   []string
}

const defaultDrain = 10 * time.Second

// Serve runs a gateway until ctx ends, then drains it: it refuses new calls as unavailable
// and lets the calls inside continue for at most Drain. It serves the API of a node, and
// the list of nodes at PathNodes.
func Serve(ctx context.Context, cfg Service, logger *slog.Logger) error {
	if cfg.Drain <= 0 {
		cfg.Drain = defaultDrain
	}
	cfg.Logger, cfg.Server.Logger = logger, logger
	cfg.Server.Tokens = cfg.tokens
	cfg.Dial = func(ctx context.Context, address string) (Link, error) {
		return dial(ctx, address, httpapi.Options{Token: cmp.Or(cfg.NodeToken, cfg.Server.Token), TLS: nodeTLS(cfg.NodeTLS, address)})
	}
	s, err := server.New(cfg.Server)
	if err != nil {
		return err
	}
	g, err := New(ctx, cfg.Config)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	err = s.Serve(ctx, handler(g, cfg, logger), server.Hooks{
		Ready: func() { ready(s, cfg, logger) },
		Drain: func() {
			g.Drain()
			logger.Info("draining", "calls_inside", g.dispatch.inside(), "timeout", cfg.Drain.String())
		},
		Finish: g.Close, Timeout: cfg.Drain,
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("gateway: calls were given up after the drain time of %v", cfg.Drain)
	case err != nil:
		return err
	}
	logger.Info("drained", "done", g.Stats().Totals.Done)
	return nil
}

// tokens returns the tokens that open a path.
func (s *Service) tokens(path string) []string {
	token := s.Server.Token
	if s.NodeToken != "" && (path == PathNodes || strings.HasPrefix(path, PathNodes+"/")) {
		token = s.NodeToken
	}
	if token == "" {
		return nil
	}
	return []string{token}
}

func ready(s *server.Server, cfg Service, logger *slog.Logger) {
	logger.Info("sandbox gateway serves", "build", cfg.Build, "url", s.URL(), "nodes", cfg.Nodes,
		"token", cfg.Server.Token != "", "tls", cfg.Server.TLS != server.TLSFiles{})
	if cfg.OnReady != nil {
		cfg.OnReady(Ready{Address: s.Address(), URL: s.URL(), Nodes: cfg.Nodes})
	}
}

// nodeLink carries calls on one stream. The rare end of a session is a separate request.
type nodeLink struct {
	*httpapi.Stream
	client *httpapi.Client
}

var (
	_ Link                  = (*nodeLink)(nil)
	_ sandbox.SessionCloser = (*nodeLink)(nil)
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

func (l *nodeLink) CloseSession(ctx context.Context, run, name string) (bool, error) {
	return l.client.CloseSession(ctx, run, name)
}

func (l *nodeLink) Close() {
	l.Stream.Close()
	l.client.Close()
}

// nodeTLS returns no configuration for addresses that name no scheme, which keeps plain
// HTTP: config is only for nodes with certificates.
func nodeTLS(config *tls.Config, address string) *tls.Config {
	if isTLS(address) {
		return config
	}
	return nil
}

func handler(g *Gateway, cfg Service, logger *slog.Logger) http.Handler {
	var exec sandbox.Executor = g
	var more map[string]http.Handler
	if cfg.Mount != nil {
		exec, more = cfg.Mount(g)
	}
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.NewHandler(exec, httpapi.Config{
		Logger: logger, Load: g.Load, Budget: cfg.Budget, CloseSession: g.CloseSession,
		Status: func() any { return g.Stats() },
	}))
	nodes := &nodesAPI{registry: g.registry}
	if cfg.NodeToken == "" {
		mux.HandleFunc(PathNodes+"/", nodes.refuse)
		mux.HandleFunc(PathNodes, nodes.refuse)
	} else {
		nodes.route(mux)
	}
	for pattern, h := range more {
		mux.Handle(pattern, h)
	}
	return mux
}
