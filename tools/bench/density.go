package bench

import (
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/sandbox"
	"temper/tools/bench/sandboxbench"
)

func densityCommand() *cobra.Command {
	var asJSON bool
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Kernels < 1 || cfg.Callers < 1 || cfg.Branches < 1 {
			return cli.Usagef("--kernels is %d, --callers %d, --branches %d: want at least 1", cfg.Kernels, cfg.Callers, cfg.Branches)
		}
		if err := cli.FindPython(cfg.Python); err != nil {
			return cli.Usage(err)
		}
		d, err := sandboxbench.MeasureDensity(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, d)
		}
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
		return nil
	}
	return cmd
}
