package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

func soakCommand() *cobra.Command {
	var node nodeFlags
	var cfg sandboxbench.SoakConfig
	var api, mix string
	var seed uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Put a long mixed load, 2 % of it hostile, on a node and look for what it leaves behind",
		Args:  cobra.NoArgs,
	}
	node.register(cmd)
	f := cmd.Flags()
	f.StringVar(&api, "api", string(loadgen.APIStream), fmt.Sprintf("interface, one of %v", loadgen.APIs()))
	f.IntVar(&cfg.Calls, "calls", 200000, "calls in all, measured by tenths")
	f.IntVar(&cfg.Concurrency, "concurrency", 64, "calls in flight")
	f.StringVar(&mix, "mix", "soak", "programs: soak, or soak-stdlib for an interpreter without numpy and sympy")
	f.Uint64Var(&seed, "seed", 1, "order of the programs")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Calls < 10 || cfg.Concurrency < 1 {
			return cli.Usagef("--calls is %d and --concurrency %d, want at least 10 and 1", cfg.Calls, cfg.Concurrency)
		}
		var err error
		if cfg.Mix, err = loadgen.NamedMix(mix, seed); err != nil {
			return cli.Usagef("--mix: %w", err)
		}
		cfg.Prefix = uniquePrefix("soak")
		return withNode(cmd, node, api, func(target loadgen.Target, node *sandboxbench.Child) error {
			cfg.Target, cfg.PID, cfg.CPU = target, node.PID(), loadgen.CPU{PIDs: []int{node.PID()}}
			return runSoak(cmd, cfg, asJSON)
		})
	}
	return cmd
}

func runSoak(cmd *cobra.Command, cfg sandboxbench.SoakConfig, asJSON bool) error {
	out := cmd.OutOrStdout()
	if !asJSON {
		fmt.Fprintf(out, "%-7s %8s %9s %9s %8s %6s %9s %11s %6s %7s %8s %6s %8s %6s %9s\n", "tenth", "calls/s", "mean", "CPU", "failed",
			"procs", "node MiB", "zygotes MiB", "fds", "mounts", "cgroups", "shm", "shm MiB", "temp", "strangers")
		cfg.Note = func(t sandboxbench.Tenth) { printTenth(out, t) }
	}
	r, err := sandboxbench.Soak(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.PrintJSON(out, r)
	} else {
		printSoak(out, r)
	}
	if err == nil && !r.Steady() {
		err = errors.New("the service did not come through the soak unchanged")
	}
	return err
}

func printTenth(out io.Writer, t sandboxbench.Tenth) {
	f, i, name := t.Figures, t.Inventory, fmt.Sprint(t.Number)
	if t.Number == 0 {
		name = "before"
	}
	fmt.Fprintf(out, "%-7s %8.1f %9v %9v %8d %6d %9d %11d %6d %7d %8d %6d %8d %6d %9d\n", name, f.PerSecond, f.Mean.Round(100*time.Microsecond),
		round(f.CPU), f.Failed, i.Processes, i.NodeRSS>>20, i.ZygoteRSS>>20, i.Descriptors, i.Mounts, i.Cgroups,
		i.SharedFiles, i.SharedBytes>>20, i.TempFiles, i.Strangers)
}

func printSoak(out io.Writer, r sandboxbench.SoakReport) {
	for _, t := range r.Tenths {
		if t.Figures.Failure != "" {
			fmt.Fprintf(out, "tenth %d: %d failed, first %s\n", t.Number, t.Figures.Failed, t.Figures.Failure)
		}
	}
	leak := "no"
	if len(r.Leaks) > 0 {
		leak = fmt.Sprintf("yes: %v", r.Leaks)
	}
	fmt.Fprintf(out, "leak: %s; last tenth against the first: %+.1f %% calls/s, %+.1f %% CPU a call; failed: %d\n",
		leak, 100*r.Drift, 100*r.CPUDrift, r.Failed)
}
