package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

// sandboxFlags are the flags of both: the load with --url, and the comparison
// without.
type sandboxFlags struct {
	local       sandboxbench.Config
	load        loadFlags
	calls       int
	concurrency int
	asJSON      bool
}

func sandboxCommand() *cobra.Command {
	o := sandboxFlags{local: sandboxbench.Config{Python: config.DefaultProcess().Python}}
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

func compareLocal(cmd *cobra.Command, o sandboxFlags) error {
	for _, name := range []string{"api", "rate", "duration", "seed", "mix", "program", "want", "timeout", "patience", "cpu-of"} {
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
	c, err := sandboxbench.Compare(cmd.Context(), o.local)
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
		f    loadgen.Figures
	}{{"warm", c.Warm}, {"fresh -I", c.Fresh.Figures}, {"fresh -IS", c.FreshBare.Figures}} {
		fmt.Fprintf(out, "%-10s %10.1f %10s %10s %10s %10s %12s %8d\n", row.name, row.f.PerSecond,
			round(row.f.Mean), round(row.f.P50), round(row.f.P99), round(row.f.Service), round(row.f.CPU), row.f.Failed)
	}
	for _, row := range []struct {
		name string
		b    sandboxbench.Baseline
	}{{"python3 -I", c.Fresh}, {"python3 -I -S", c.FreshBare}} {
		fmt.Fprintf(out, "against a fresh %s in the same jail: %.1f times the calls a second, %.1f times less CPU a call\n", row.name, row.b.Speedup, row.b.CPURatio)
	}
	return nil
}
