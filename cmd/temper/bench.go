package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/sandbox/bench"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure parts of the service on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		benchSandboxCommand(), benchStoreCommand(), benchCheckpointCommand(), benchContestCommand(), benchScaleCommand(), benchSoakCommand(), benchModelCommand(), benchLayersCommand(),
		benchTrainerCommand(), benchChaosCommand(),
	)
	return cmd
}

// benchSandboxFlags are those of both halves of the command.
type benchSandboxFlags struct {
	local       bench.Config
	load        loadFlags
	calls       int
	concurrency int
	asJSON      bool
}

func benchSandboxCommand() *cobra.Command {
	o := benchSandboxFlags{local: bench.Config{Python: config.DefaultProcess().Python}}
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Put load on a sandbox, or compare warm interpreters with fresh ones on this machine",
		Long: `With --url: puts load on any service that speaks one of the sandbox's interfaces or Code-Judge's,
in a closed loop of --concurrency callers, or with --rate in an open loop of random arrivals.
Without --url: compares warm interpreters with a fresh isolated interpreter for each call.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.local.Python, "python", o.local.Python, "interpreter, without --url (TEMPER_PYTHON)")
	f.StringVar(&o.local.Code, "code", "print(1+1)", "program of a call, without --url")
	f.IntVar(&o.calls, "calls", 2000, "calls of a closed loop; without --url a tenth of them with fresh interpreters")
	f.IntVar(&o.concurrency, "concurrency", 0, "calls in flight; 0 = the number of cores, in an open loop no bound")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	o.load.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.load.service.url != "" {
			return runLoad(cmd, o)
		}
		return compareLocal(cmd, o)
	}
	return cmd
}

func compareLocal(cmd *cobra.Command, o benchSandboxFlags) error {
	for _, name := range []string{"api", "rate", "duration", "seed", "mix", "program", "want", "timeout", "cpu-of"} {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s needs --url", name)
		}
	}
	o.local.Calls, o.local.Concurrency = o.calls, o.concurrency
	if o.local.Calls < 10 {
		return cli.Usagef("--calls is %d, want at least 10", o.local.Calls)
	}
	if err := cli.FindPython(o.local.Python); err != nil {
		return cli.Usage(err)
	}
	c, err := bench.Compare(cmd.Context(), o.local)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.asJSON {
		return cli.PrintJSON(out, c)
	}
	fmt.Fprintf(out, "%-10s %10s %10s %10s %10s %10s %12s %8s\n", "", "calls/s", "mean", "p50", "p99", "service", "CPU a call", "failed")
	for _, row := range []struct {
		name string
		f    bench.Figures
	}{{"warm", c.Warm}, {"fresh -I", c.Fresh.Figures}, {"fresh -IS", c.FreshBare.Figures}} {
		fmt.Fprintf(out, "%-10s %10.1f %10s %10s %10s %10s %12s %8d\n", row.name, row.f.PerSecond,
			round(row.f.Mean), round(row.f.P50), round(row.f.P99), round(row.f.Service), round(row.f.CPU), row.f.Failed)
	}
	for _, row := range []struct {
		name string
		b    bench.Baseline
	}{{"python3 -I", c.Fresh}, {"python3 -I -S", c.FreshBare}} {
		fmt.Fprintf(out, "against a fresh %s in the same jail: %.1f times the calls a second, %.1f times less CPU a call\n", row.name, row.b.Speedup, row.b.CPURatio)
	}
	return nil
}

// serviceFlags name a service that runs elsewhere, or how to start one.
type serviceFlags struct {
	url   string
	api   string
	cpuOf []string
}

func (s *serviceFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.url, "url", "", "service: http://HOST:PORT, HOST:PORT or unix:/path; its token in TEMPER_SANDBOX_TOKEN")
	f.StringVar(&s.api, "api", string(bench.APIStream), fmt.Sprintf("interface, one of %v", bench.APIs()))
	f.StringSliceVar(&s.cpuOf, "cpu-of", nil, "whose CPU is the service's: process ids, each with its descendants, and cgroup folders")
}

// connect returns the service and who tells its processor time.
func (s *serviceFlags) connect() (bench.Target, bench.CPU, error) {
	cpu, err := bench.ParseCPU(s.cpuOf)
	if err != nil {
		return nil, cpu, cli.Usagef("--cpu-of: %w", err)
	}
	target, err := bench.Connect(s.url, bench.Options{API: bench.API(s.api), Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return nil, cpu, cli.Usagef("--url, --api: %w", err)
	}
	return target, cpu, nil
}

// nodeFlags size a node that a command starts for itself.
type nodeFlags struct {
	python string
	slots  int
	queue  int
}

func (n *nodeFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&n.python, "python", config.DefaultProcess().Python, "interpreter of the node (TEMPER_PYTHON)")
	f.IntVar(&n.slots, "slots", 64, "programs that the node runs at a time")
	f.IntVar(&n.queue, "queue", 1024, "programs that may wait at the node")
}

// start runs a node of this binary.
func (n *nodeFlags) start(cmd *cobra.Command) (*bench.Child, error) {
	if err := cli.FindPython(n.python); err != nil {
		return nil, cli.Usage(err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return bench.StartChild(cmd.Context(), self, bench.ChildConfig{Name: "node", Args: []string{
		"sandbox", "--listen", "127.0.0.1:0", "--python", n.python,
		"--slots", fmt.Sprint(n.slots), "--queue", fmt.Sprint(n.queue),
	}})
}

// withNode calls use with a node of its own and the flags that reach it.
func withNode(cmd *cobra.Command, n nodeFlags, api string, use func(target bench.Target, node *bench.Child) error) error {
	node, err := n.start(cmd)
	if err != nil {
		return err
	}
	stop := func() error { return node.Stop(15 * time.Second) }
	target, err := bench.Connect(node.Address, bench.Options{API: bench.API(api), Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	if err != nil {
		return errors.Join(cli.Usagef("--api: %w", err), stop())
	}
	err = use(target, node)
	target.Close()
	return errors.Join(err, stop())
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// uniquePrefix begins the IDs of a load: a service answers a repeated ID with the
// first answer and must not do so here.
func uniquePrefix(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }
