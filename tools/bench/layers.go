package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/sandboxbench"
)

func layersCommand() *cobra.Command {
	var asJSON bool
	cfg := sandboxbench.LayersConfig{Python: config.DefaultProcess().Python}
	cmd := &cobra.Command{
		Use:   "layers",
		Short: "Measure what a call costs with one isolation layer more after the other",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", cfg.Python, "interpreter (TEMPER_PYTHON)")
	f.StringVar(&cfg.Code, "code", "print(1+1)", "program of a call")
	f.IntVar(&cfg.Calls, "calls", 500, "calls of each way in each round")
	f.IntVar(&cfg.Rounds, "rounds", 5, "rounds, of which the median counts")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Calls < 10 || cfg.Rounds < 1 {
			return cli.Usagef("--calls is %d and --rounds %d: want at least 10 and 1", cfg.Calls, cfg.Rounds)
		}
		if err := cli.FindPython(cfg.Python); err != nil {
			return cli.Usage(err)
		}
		costs, err := sandboxbench.MeasureLayers(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, costs)
		}
		fmt.Fprintf(out, "%-32s %8s %8s %8s %8s %10s %8s %8s\n", "CPU of a call, microseconds", "child", "fork", "owner", "total", "of bare", "faults", "mappings")
		us := func(d time.Duration) int64 { return d.Microseconds() }
		for _, c := range costs {
			fmt.Fprintf(out, "%-32s %8d %8d %8d %8d %9.0f%% %8d %8d\n", c.Name, us(c.Child), us(c.Fork), us(c.Owner), us(c.Total),
				100*float64(costs[0].Total)/float64(c.Total), c.Faults, c.Mappings)
		}
		return nil
	}
	return cmd
}
