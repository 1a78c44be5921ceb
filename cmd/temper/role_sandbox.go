package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc"
	"temper/internal/proc/buildinfo"
	"temper/sandbox/budget"
	"temper/sandbox/codejudge"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/node"
	"temper/sandbox/server"
	"temper/workers"
)

func (f *roleFlags) sandboxCommand() *cobra.Command {
	o := workers.SandboxOptions{Node: node.Config{Build: buildinfo.Line()}}
	cfg := &o.Node
	cmd := &cobra.Command{Use: roleSandbox, Short: "Serve isolated Python execution", Args: cobra.NoArgs}
	p := f.process
	serverFlags(cmd, &cfg.Server)
	flags := cmd.Flags()
	cli.PythonFlag(flags, p)
	flags.IntVar(&cfg.Zygotes, "zygotes", 0, "warm interpreters; 0 = one a core")
	flags.IntVar(&cfg.Slots, "slots", 0, "programs running at a time; 0 = a multiple of the cores")
	flags.IntVar(&cfg.Queue, "queue", 0, "programs waiting; 0 = a multiple of the slots")
	flags.IntVar(&cfg.Sessions, "sessions", 0, "sessions with an interpreter at a time; 0 = a multiple of the cores")
	flags.StringSliceVar(&cfg.Require, "require", nil, "isolation layers without which to refuse to start; all = every layer")
	flags.Var((*byteSize)(&cfg.Memory), "memory", "bound of all programs together, such as 24GiB; 0 = three quarters of what there is")
	flags.Var((*byteSize)(&cfg.Budget), "budget", budgetUsage)
	judgeFlags(cmd, &cfg.Judge)
	flags.BoolVar(&cfg.Subprocess, "subprocess", false, "let calls of the profile subprocess start the interpreter again")
	flags.DurationVar(&cfg.Drain, "drain", 10*time.Second, "how long calls may go on after SIGTERM")
	flags.StringVar(&o.Gateway, "join", "", "URL of a gateway that this node serves; needs "+workers.SandboxNodeTokenKey)
	flags.StringVar(&o.Advertise, "advertise", "", "host:port at which that gateway reaches this node; the address of --listen by default")
	o.NodeToken = os.Getenv(workers.SandboxNodeTokenKey)
	debug := flags.Bool("debug", false, "also log some of the calls, never their code or output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Python, cfg.Server.Listen, cfg.Server.Insecure = p.Python, f.address(p.SandboxAddress), f.insecure
		client, err := workers.SandboxClientOptions()
		o.GatewayTLS = client.TLS
		err = errors.Join(err, cli.FindPython(cfg.Python), checkSandboxListen(cfg.Server.Listen), cfg.Server.Check(), checkSizes(cfg), checkJudge(cfg.Judge), o.Check())
		if err != nil {
			return cli.Usage(err)
		}
		o.Log = sandboxLogger(roleSandbox, *debug)
		cfg.OnReady = func(ready node.Ready) { printReady(cmd, o.Log, ready) }
		return workers.Sandbox(o).Serve(cmd.Context(), workers.ServeOptions{Log: o.Log})
	}
	return cmd
}

// budgetUsage describes --budget of a node and of a gateway.
const budgetUsage = "bytes of bodies, answers and sessions that this process holds, such as 1GiB; 0 = an eighth of the memory, from 256MiB to 2GiB"

// judgeFlags adds the limits of the Code-Judge API, by the names that its own service has
// for them in the environment.
func judgeFlags(cmd *cobra.Command, limits *codejudge.Limits) {
	f := cmd.Flags()
	f.DurationVar(&limits.Execution, "max-execution-time", 0, "wall and processor time of a program of a Code-Judge client; 0 = 10s")
	f.Var((*byteSize)(&limits.Memory), "max-memory", "memory of a program of a Code-Judge client, such as 512MiB; 0 = 1GiB")
}

// checkJudge finds limits that no program could have.
func checkJudge(limits codejudge.Limits) error {
	most := jail.Most()
	var wrong []error
	if limits.Execution < 0 || limits.Execution > most.Wall {
		wrong = append(wrong, fmt.Errorf("--max-execution-time: is %v, outside 0 to %v", limits.Execution, most.Wall))
	}
	if limits.Memory != 0 && (limits.Memory < jail.LeastMemory || limits.Memory > most.Memory) {
		wrong = append(wrong, fmt.Errorf("--max-memory: is %d, outside %d to %d", limits.Memory, jail.LeastMemory, most.Memory))
	}
	return errors.Join(wrong...)
}

// serverFlags adds what a node and a gateway have in common. The token comes from
// the environment: every user of a machine sees the flags of a process.
func serverFlags(cmd *cobra.Command, cfg *server.Config) {
	cfg.Token = os.Getenv(workers.SandboxTokenKey)
	f := cmd.Flags()
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file of its private key")
	f.StringVar(&cfg.TLS.ClientCA, "tls-client-ca", "", "PEM file of the authorities of which clients need a certificate")
}

// byteSize is a flag that takes an amount of memory.
type byteSize int64

// String implements pflag.Value.
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }

// Set implements pflag.Value: a number with a binary unit or none.
func (b *byteSize) Set(text string) error {
	number, shift := text, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return errors.New("want bytes, or a number of KiB, MiB, GiB or TiB")
	}
	*b = byteSize(n << shift)
	return nil
}

// checkSizes finds sizes of a node below zero.
func checkSizes(cfg *node.Config) error {
	var wrong []error
	for _, size := range []struct {
		flag  string
		value int64
	}{
		{"zygotes", int64(cfg.Zygotes)}, {"slots", int64(cfg.Slots)}, {"queue", int64(cfg.Queue)},
		{"sessions", int64(cfg.Sessions)}, {"drain", int64(cfg.Drain)},
	} {
		if size.value < 0 {
			wrong = append(wrong, fmt.Errorf("--%s is below zero", size.flag))
		}
	}
	return errors.Join(append(wrong, budget.Check(cfg.Budget))...)
}

// sandboxLogger is cli.NewLogger, or with debug a log of everything for machines.
func sandboxLogger(role string, debug bool) *slog.Logger {
	if !debug {
		return cli.NewLogger(role)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", role)
}

func checkSandboxListen(addr string) error {
	if _, _, err := net.SplitHostPort(addr); strings.HasPrefix(addr, httpapi.UnixPrefix) || err != nil {
		return nil // a socket, or reported with more detail by the check of the address
	}
	if err := proc.CheckListen(addr); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// printReady prints the one line that a supervisor or a script waits for.
func printReady(cmd *cobra.Command, log *slog.Logger, ready node.Ready) {
	layers := map[string]string{}
	for _, l := range ready.Report.Layers {
		layers[l.Name] = l.State()
	}
	line := map[string]any{"url": ready.URL, "python": ready.Report.Python, "layers": layers}
	if hidden := ready.Report.Hidden(); len(hidden) > 0 {
		line["left_out"] = hidden
	}
	err := server.WriteReady(cmd.OutOrStdout(), ready.Address, line)
	if err != nil {
		log.Error("ready line is not written", "err", err)
	}
}
