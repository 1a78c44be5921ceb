package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/sandbox/budget"
	"temper/sandbox/gateway"
	"temper/sandbox/server"
	"temper/workers"
)

// gatewayAddress is the default of --listen.
const gatewayAddress = "127.0.0.1:8766"

func (f *roleFlags) gatewayCommand() *cobra.Command {
	o := workers.GatewayOptions{Service: gateway.Service{Build: buildinfo.Line()}}
	cfg := &o.Service
	cmd := &cobra.Command{Use: roleGateway, Short: "Spread sandbox calls over nodes", Args: cobra.NoArgs}
	serverFlags(cmd, &cfg.Server)
	flags := cmd.Flags()
	flags.StringArrayVar(&cfg.Nodes, "node", nil, "node to use: host:port, a URL or unix:/path; repeat for more; with "+workers.SandboxNodeTokenKey+" others may join")
	cfg.NodeToken = os.Getenv(workers.SandboxNodeTokenKey)
	flags.IntVar(&cfg.Queue, "queue", 0, "calls waiting; 0 = 65536")
	flags.Var((*byteSize)(&cfg.QueueBytes), "queue-bytes", "bytes of all calls inside, such as 1GiB; 0 = 512MiB")
	var held int64
	flags.Var((*byteSize)(&held), "budget", budgetUsage)
	judgeFlags(cmd, &o.Judge)
	flags.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how long calls may go on after SIGTERM")
	var ca, cert, key string
	flags.StringVar(&ca, "node-ca", "", "PEM file of the authorities that signed the nodes' certificates")
	flags.StringVar(&cert, "node-cert", "", "PEM file of the certificate to show to nodes")
	flags.StringVar(&key, "node-key", "", "PEM file of its private key")
	debug := flags.Bool("debug", false, "log everything, never code or output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Server.Listen, cfg.Server.Insecure = f.address(gatewayAddress), f.insecure
		config, err := server.ClientTLS(ca, cert, key)
		if err := errors.Join(checkGateway(cfg), checkJudge(o.Judge), budget.Check(held), err); err != nil {
			return cli.Usage(err)
		}
		cfg.NodeTLS = config
		cfg.Budget = budget.New(held)
		o.Log = sandboxLogger(roleGateway, *debug)
		cfg.OnReady = func(ready gateway.Ready) { printGatewayReady(cmd, o.Log, ready) }
		return workers.Gateway(o).Serve(cmd.Context(), workers.ServeOptions{Log: o.Log})
	}
	return cmd
}

// checkGateway finds all mistakes of a command line at once.
func checkGateway(cfg *gateway.Service) error {
	errs := []error{checkSandboxListen(cfg.Server.Listen), cfg.Server.Check(), gateway.CheckNodes(cfg.Nodes)}
	if cfg.NodeToken != "" && cfg.NodeToken == cfg.Server.Token {
		errs = append(errs, fmt.Errorf("%s is the same as %s: whoever may call could join as a node and see every program", workers.SandboxNodeTokenKey, workers.SandboxTokenKey))
	}
	if cfg.Queue < 0 {
		errs = append(errs, fmt.Errorf("--queue: is %d, below 0", cfg.Queue))
	}
	if cfg.Drain < 0 {
		errs = append(errs, fmt.Errorf("--drain: is %v, below 0", cfg.Drain))
	}
	return errors.Join(errs...)
}

// printGatewayReady prints the one line that a supervisor or a script waits for.
func printGatewayReady(cmd *cobra.Command, log *slog.Logger, ready gateway.Ready) {
	err := server.WriteReady(cmd.OutOrStdout(), ready.Address, map[string]any{"url": ready.URL, "nodes": ready.Nodes})
	if err != nil {
		log.Error("ready line is not written", "err", err)
	}
}
