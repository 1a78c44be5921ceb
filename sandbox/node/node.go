// Package node composes a sandbox node: jail, pool and HTTP API behind one
// listener. It owns their order of start and stop, and nothing else.
//
// Invariant: when Serve returns, no interpreter and no program is alive.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// Report says what stands between a program and the machine.
type Report = jail.Report

// Config describes a node. Only Listen has no default.
type Config struct {
	// Listen is host:port, or unix:/path of a socket.
	Listen string
	// Python is the interpreter; python3 from PATH when empty.
	Python string
	// Zygotes, Slots and Queue size the pool; see pool.Config.
	Zygotes, Slots, Queue int
	// Require names the isolation layers without which the node refuses to
	// start; jail.RequireAll for every one.
	Require []string
	// Token, when set, must come as a bearer token with every call.
	Token string
	// Defaults are the limits of calls that state none.
	Defaults sandbox.Limits
	// Drain is how long calls may go on after ctx ends; 10 s when zero.
	Drain time.Duration
	// OnReady is told the address and the layers when the node takes calls.
	OnReady func(addr string, report Report)
}

// Status is the answer of GET /status.
type Status struct {
	jail.Report
	Pool pool.Stats `json:"pool"`
}

// Serve runs a node until ctx ends, then drains it. The error names what could
// not be used: the interpreter, the address, or a required layer.
func Serve(ctx context.Context, cfg Config, logger *slog.Logger) (err error) {
	listener, err := listen(cfg.Listen)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := listener.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}()
	exec, status, stop, err := assemble(ctx, cfg, logger)
	if err != nil {
		return err
	}
	handler := httpapi.NewHandler(exec, httpapi.Config{Token: cfg.Token, Logger: logger, Status: func() any { return status() }})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if cfg.OnReady != nil {
		cfg.OnReady(address(listener), status().Report)
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 10 * time.Second
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	err = errors.Join(err, stop(drain), shutdown(server, drain))
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("sandbox: calls were killed after the drain time of %v", cfg.Drain)
	}
	return err
}

func shutdown(server *http.Server, ctx context.Context) error {
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// assemble starts the jail and the pool.
func assemble(ctx context.Context, cfg Config, logger *slog.Logger) (sandbox.Executor, func() Status, func(context.Context) error, error) {
	j, err := jail.New(ctx, jail.Config{
		Python: cfg.Python, Require: cfg.Require, Defaults: cfg.Defaults, Logger: logger,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	for _, layer := range j.Report().Off() {
		logger.Warn("sandbox layer is off", "layer", layer.Name, "reason", layer.Reason)
	}
	p, err := pool.New(ctx, pool.Config{
		Zygotes: cfg.Zygotes, Slots: cfg.Slots, Queue: cfg.Queue, Logger: logger,
	}, pool.FromJail(j))
	if err != nil {
		return nil, nil, nil, errors.Join(err, j.Close())
	}
	status := func() Status { return Status{Report: j.Report(), Pool: p.Stats()} }
	stop := func(ctx context.Context) error { return errors.Join(p.Close(ctx), j.Close()) }
	return p, status, stop, nil
}

// listen opens the address, replacing a socket file that nobody serves.
func listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, httpapi.UnixPrefix)
	if !isUnix {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("sandbox address %s: %w", addr, reason(err))
		}
		return l, nil
	}
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("sandbox address %s: another process serves it", addr), conn.Close())
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("sandbox address %s: %w", addr, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("sandbox address %s: %w", addr, reason(err))
	}
	return l, nil
}

// reason strips what an error of net repeats of the address.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return httpapi.UnixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}
