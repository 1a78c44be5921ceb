package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/sandbox"
	"temper/tools/bench/sandboxbench"
)

func densityCommand() *cobra.Command {
	var asJSON, member bool
	nodes := 1
	cfg := sandboxbench.DensityConfig{Python: config.DefaultProcess().Python}
	cmd := &cobra.Command{
		Use:   "density",
		Short: "Measure what idle sessions cost, and how long first cells and branches take",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", cfg.Python, "interpreter (TEMPER_PYTHON)")
	f.StringVar(&cfg.Code, "code", "", "first cell of each session; a small function when empty")
	f.StringVar((*string)(&cfg.Profile), "profile", string(sandbox.ProfileAuto), "strict or numeric; by the imports when empty")
	f.IntVar(&cfg.Kernels, "kernels", 500, "sessions that live at once")
	f.IntVar(&cfg.Callers, "callers", 1, "first cells at a time")
	f.IntVar(&cfg.Branches, "branches", 100, "branches to time")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.IntVar(&nodes, "nodes", 1, "processes that share the sessions, as nodes behind a gateway do")
	f.BoolVar(&member, "member", false, "be one of several nodes")
	_ = f.MarkHidden("member") // the flag is there
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if min(cfg.Kernels, cfg.Callers, cfg.Branches, nodes) < 1 {
			return cli.Usagef("--kernels is %d, --callers %d, --branches %d, --nodes %d: want at least 1", cfg.Kernels, cfg.Callers, cfg.Branches, nodes)
		}
		if err := cli.FindPython(cfg.Python); err != nil {
			return cli.Usage(err)
		}
		out := cmd.OutOrStdout()
		if member {
			return densityMember(cmd.Context(), cfg, cmd.InOrStdin(), out)
		}
		if nodes > 1 {
			return densityOfNodes(cmd.Context(), nodes, cfg, asJSON, out)
		}
		d, err := sandboxbench.MeasureDensity(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(out, d)
		}
		printDensity(out, d)
		return nil
	}
	return cmd
}

func printDensity(out io.Writer, d sandboxbench.Density) {
	fmt.Fprintf(out, "%d idle kernels; KiB each: cgroup %d, machine %d, PSS %d, private %d, page tables %d, owner %d\n",
		d.Kernels, d.Group>>10, d.Machine>>10, d.Pages>>10, d.Private>>10, d.Tables>>10, d.Owner>>10)
	fmt.Fprintf(out, "owner, each: %.1f descriptors, %.1f goroutines; 10,000 kernels: %.1f GiB\n",
		d.Descriptors, d.Goroutines, float64(d.Total)/(1<<30))
	for _, row := range []struct {
		name string
		t    sandboxbench.Times
	}{{"call", d.Call}, {"first cell", d.First}, {"next cell", d.Next}, {"branch", d.Branch}, {"replay", d.Replay}} {
		fmt.Fprintf(out, "%-10s p10 %6.2f, p50 %6.2f, p99 %6.2f ms\n", row.name, 1e3*row.t.P10.Seconds(), 1e3*row.t.P50.Seconds(), 1e3*row.t.P99.Seconds())
	}
}
