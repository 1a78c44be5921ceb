package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/sandbox"
	"temper/sandbox/codejudge"
	"temper/sandbox/gateway"
	"temper/sandbox/metrics"
	"temper/sandbox/server"
)

// gatewayAddress is the default of --listen.
const gatewayAddress = "127.0.0.1:8766"

func gatewayCommand() *cobra.Command {
	cfg := gateway.Service{Build: buildinfo.Line()}
	cmd := &cobra.Command{Use: "gateway", Short: "Spread sandbox calls over nodes", Args: cobra.NoArgs}
	serverFlags(cmd, &cfg.Server, gatewayAddress)
	f := cmd.Flags()
	f.StringArrayVar(&cfg.Nodes, "node", nil, "node to use: host:port, a URL or unix:/path; repeat for more; others may join")
	f.IntVar(&cfg.Queue, "queue", 0, "calls waiting; 0 = 65536")
	f.Var((*byteSize)(&cfg.QueueBytes), "queue-bytes", "bytes of all calls inside, such as 1GiB; 0 = 512MiB")
	f.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how long calls may go on after SIGTERM")
	var ca, cert, key string
	f.StringVar(&ca, "node-ca", "", "PEM file of the authorities that signed the nodes' certificates")
	f.StringVar(&cert, "node-cert", "", "PEM file of the certificate to show to nodes")
	f.StringVar(&key, "node-key", "", "PEM file of its private key")
	debug := f.Bool("debug", false, "log everything, never code or output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := server.ClientTLS(ca, cert, key)
		if err := errors.Join(checkGateway(&cfg), err); err != nil {
			return cli.Usage(err)
		}
		cfg.NodeTLS = config
		log := sandboxLogger("gateway", *debug)
		cfg.Mount = func(g *gateway.Gateway) (sandbox.Executor, map[string]http.Handler) {
			return mountOnGateway(g, cfg.Build, log)
		}
		cfg.OnReady = func(ready gateway.Ready) { printGatewayReady(cmd, log, ready) }
		return gateway.Serve(cmd.Context(), cfg, log)
	}
	return cmd
}

// checkGateway finds every mistake of a command line at once.
func checkGateway(cfg *gateway.Service) error {
	errs := []error{checkSandboxListen(cfg.Server.Listen), cfg.Server.Check(), gateway.CheckNodes(cfg.Nodes)}
	if cfg.Queue < 0 {
		errs = append(errs, fmt.Errorf("--queue: is %d, below 0", cfg.Queue))
	}
	if cfg.Drain < 0 {
		errs = append(errs, fmt.Errorf("--drain: is %v, below 0", cfg.Drain))
	}
	return errors.Join(errs...)
}

// mountOnGateway records every call and adds the Code-Judge API and the metrics.
func mountOnGateway(g *gateway.Gateway, build string, log *slog.Logger) (sandbox.Executor, map[string]http.Handler) {
	recorder := metrics.New(gatewaySources(g, build), log)
	exec := metrics.Wrap(g, recorder)
	judge := codejudge.NewHandler(exec, codejudge.Config{Logger: log, Load: func() codejudge.Load {
		l := g.Load()
		return codejudge.Load{Queue: l.Waiting, Workers: l.Slots}
	}})
	more := map[string]http.Handler{"GET " + metrics.Path: recorder.Handler()}
	for _, path := range codejudge.Paths() {
		more[path] = judge
	}
	return exec, more
}

// gatewaySources are what the metrics show besides the calls.
func gatewaySources(g *gateway.Gateway, build string) metrics.Sources {
	return metrics.Sources{
		Build: build,
		Load:  g.Load,
		Nodes: func() []metrics.Node {
			var nodes []metrics.Node
			for _, n := range g.Stats().Nodes {
				nodes = append(nodes, metrics.Node{
					Name: n.Address, Up: n.Up, Slots: n.Slots, InFlight: n.InFlight, Retries: n.Retried, Deaths: n.Deaths,
				})
			}
			return nodes
		},
		Router: func() metrics.Router {
			s := g.Stats()
			waiting := make(map[string]int, len(s.Runs))
			for _, r := range s.Runs {
				waiting[r.Run] = r.Waiting
			}
			return metrics.Router{WaitingByRun: waiting, Overloads: s.Totals.Overloaded, Bytes: s.Bytes, MaxBytes: s.QueueBytes}
		},
	}
}

// printGatewayReady prints the one line that a supervisor or a script waits for.
func printGatewayReady(cmd *cobra.Command, log *slog.Logger, ready gateway.Ready) {
	err := server.WriteReady(cmd.OutOrStdout(), ready.Address, map[string]any{"url": ready.URL, "nodes": ready.Nodes})
	if err != nil {
		log.Error("ready line is not written", "err", err)
	}
}
