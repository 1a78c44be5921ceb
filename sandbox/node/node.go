// Package node composes a sandbox node: jail, pool, metrics and every API behind
// one listener. It owns their order of start and stop, and nothing else.
//
// Invariant: when Serve returns, no interpreter and no program is alive.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
	"temper/sandbox/codejudge"
	"temper/sandbox/jail"
	"temper/sandbox/metrics"
	"temper/sandbox/pool"
	"temper/sandbox/server"
	"temper/sandbox/session"
)

// Ready describes a node that takes calls.
type Ready struct {
	Address string // host:port or unix:/path
	URL     string // the same with its scheme
	Report  jail.Report
}

// Config describes a node. Only Server.Listen has no default.
type Config struct {
	// Server configures the listener and its callers.
	Server server.Config
	// Build is the version of the program in the status and the log.
	Build string
	// Python is the interpreter; python3 from PATH when empty.
	Python string
	// Zygotes, Slots and Queue size the pool; see pool.Config.
	Zygotes, Slots, Queue int
	// Sessions bounds the kernels that exist at a time; see session.Config.
	Sessions int
	// Require names the isolation layers without which the node refuses to
	// start; jail.RequireAll for every one.
	Require []string
	// Memory bounds all programs together, in bytes; three quarters of the available
	// memory when zero. It needs the layer cgroup.
	Memory int64
	// Subprocess lets programs of the profile subprocess start the interpreter.
	Subprocess bool
	// Defaults are the limits of calls that state none.
	Defaults sandbox.Limits
	// Judge bounds the programs of Code-Judge clients.
	Judge codejudge.Limits
	// Budget bounds the bytes that the node holds itself: bodies, answers and the cells
	// of sessions; see budget.New for zero.
	Budget int64
	// Drain is how long calls may continue after ctx ends; 10 s when zero.
	Drain time.Duration
	// OnReady is called once, when the node takes calls.
	OnReady func(Ready)
}

// node holds the parts that Serve has started.
type node struct {
	cfg      Config
	logger   *slog.Logger
	jail     *jail.Jail
	pool     *pool.Pool
	sessions *session.Manager
	gate     *callGate
	budget   *budget.Budget
	metrics  *metrics.Recorder
	exec     sandbox.Executor // the gate with metrics
}

const defaultDrain = 10 * time.Second

// Serve runs a node until ctx ends, then drains it: it refuses new calls as unavailable and
// lets the calls inside continue for at most Drain. The error names the unusable part (an
// address, a file, the interpreter or a required layer) or reports that calls were killed
// at the end.
func Serve(ctx context.Context, cfg Config, logger *slog.Logger) error {
	cfg.Server.Logger = logger
	if cfg.Drain <= 0 {
		cfg.Drain = defaultDrain
	}
	s, err := server.New(cfg.Server)
	if err != nil {
		return err
	}
	n, err := start(ctx, cfg, logger)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	err = s.Serve(ctx, n.handler(), server.Hooks{
		Ready: func() { n.ready(s) }, Drain: n.drain, Finish: n.finish, Timeout: cfg.Drain,
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("sandbox: calls were killed after the drain time of %v", cfg.Drain)
	case err != nil:
		return err
	}
	logger.Info("drained", "executed", n.pool.Stats().Executed)
	return nil
}

// start builds the node, inner parts first.
func start(ctx context.Context, cfg Config, logger *slog.Logger) (*node, error) {
	sized := pool.Config{Zygotes: cfg.Zygotes, Slots: cfg.Slots, Queue: cfg.Queue, Logger: logger}
	held := budget.New(cfg.Budget)
	kept := session.Config{MaxKernels: cfg.Sessions, TotalBytes: held.Cells, Logger: logger}
	j, err := jail.New(ctx, jail.Config{
		Python: cfg.Python, Require: cfg.Require, Defaults: cfg.Defaults, TotalMemory: cfg.Memory, Logger: logger,
		Children: sized.Running() + kept.Kernels(), Subprocess: cfg.Subprocess,
	})
	if err != nil {
		return nil, err
	}
	for _, layer := range j.Report().Off() {
		logger.Warn("sandbox layer is off", "layer", layer.Name, "reason", layer.Reason)
	}
	p, err := pool.New(ctx, sized, pool.FromJail(j))
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	n := &node{cfg: cfg, logger: logger, jail: j, pool: p, budget: held}
	n.sessions = session.New(p, session.OnPool(p), kept)
	n.gate = newCallGate(n.sessions)
	n.metrics = metrics.New(n.sources(), logger)
	n.exec = metrics.Wrap(n.gate, n.metrics)
	return n, nil
}

// ready reports in the log, and to the owner of the node, that it takes calls.
func (n *node) ready(s *server.Server) {
	report, stats, limits := n.jail.Report(), n.pool.Stats(), n.jail.Defaults()
	on, off := []string{}, []string{}
	for _, l := range report.Layers {
		if l.On {
			on = append(on, l.Name)
		} else {
			off = append(off, l.Name)
		}
	}
	n.logger.Info("sandbox node serves", "build", n.cfg.Build, "url", s.URL(),
		"mode", string(report.Mode), "python", report.Version, "layers_on", on, "layers_off", off,
		"zygotes", stats.Zygotes, "slots", stats.Slots, "queue", stats.Queue,
		"wall_limit", limits.Wall.String(), "cpu_limit", limits.CPU.String(),
		"memory_limit", limits.Memory, "output_limit", limits.Output, "budget", n.budget.Total,
		"token", n.cfg.Server.Token != "", "tls", n.cfg.Server.TLS != server.TLSFiles{})
	if n.cfg.OnReady != nil {
		n.cfg.OnReady(Ready{Address: s.Address(), URL: s.URL(), Report: report})
	}
}

// drain refuses new calls.
func (n *node) drain() {
	n.logger.Info("draining", "calls_inside", n.gate.close(), "timeout", n.cfg.Drain.String())
}

// finish waits for the calls inside, then ends all parts, outer parts first.
func (n *node) finish(ctx context.Context) error {
	return errors.Join(n.gate.wait(ctx), n.sessions.Close(ctx), n.pool.Close(ctx), n.jail.Close())
}
