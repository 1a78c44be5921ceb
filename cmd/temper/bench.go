package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/config"
	"temper/sandbox/bench"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure parts of the service on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(benchSandboxCommand())
	return cmd
}

func benchSandboxCommand() *cobra.Command {
	var asJSON bool
	cfg := bench.Config{Python: config.DefaultProcess().Python}
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Compare warm interpreters with a fresh isolated interpreter for each call",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", cfg.Python, "interpreter (TEMPER_PYTHON)")
	f.StringVar(&cfg.Code, "code", "print(1+1)", "program of a call")
	f.IntVar(&cfg.Calls, "calls", 2000, "calls with warm interpreters; a tenth of them with fresh ones")
	f.IntVar(&cfg.Concurrency, "concurrency", 0, "calls in flight; 0 = the number of cores")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Calls < 10 {
			return usagef("--calls is %d, want at least 10", cfg.Calls)
		}
		if err := findPython(cfg.Python); err != nil {
			return usageError{err}
		}
		c, err := bench.Compare(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			enc := json.NewEncoder(out)
			enc.SetIndent("", "  ")
			return enc.Encode(c)
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
	return cmd
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
