package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

func overloadCommand() *cobra.Command {
	var node nodeFlags
	var cfg sandboxbench.OverloadConfig
	var api string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "overload",
		Short: "Ask a node for more and more at a time, and see what it still gets done",
		Long: `Starts a node and runs programs that compute, at each level with so many callers for each core, the levels
taking turns. Fails when a call is answered otherwise than by its program's own doing, or when the programs
done in a second of processor time fall by more than 10 % against the first level.`,
		Args: cobra.NoArgs,
	}
	node.register(cmd)
	f := cmd.Flags()
	f.StringVar(&api, "api", string(loadgen.APIStream), fmt.Sprintf("interface, one of %v", loadgen.APIs()))
	f.IntSliceVar(&cfg.Levels, "levels", []int{1, 2, 8, 32}, "callers for each core")
	f.DurationVar(&cfg.Work, "work", 300*time.Millisecond, "processor time of a program")
	f.IntVar(&cfg.Hostile, "hostile", 0, "of 100 programs, how many compute with 40 threads for a second")
	f.IntVar(&cfg.Calls, "calls", 64, "calls of a level in a round, and no fewer than its callers")
	f.IntVar(&cfg.Rounds, "rounds", 2, "rounds of all levels")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, level := range cfg.Levels {
			if level < 1 {
				return cli.Usagef("--levels has %d, want at least 1", level)
			}
		}
		if cfg.Calls < 1 || cfg.Rounds < 1 || cfg.Work <= 0 || cfg.Hostile < 0 || cfg.Hostile > 100 {
			return cli.Usagef("--calls is %d, --rounds %d, --work %v and --hostile %d, want at least 1, 1, 1ns, and 0 to 100",
				cfg.Calls, cfg.Rounds, cfg.Work, cfg.Hostile)
		}
		cfg.Prefix = uniquePrefix("overload")
		return withNode(cmd, node, api, func(target loadgen.Target, node *sandboxbench.Child) error {
			cfg.Target, cfg.CPU = target, loadgen.CPU{PIDs: []int{node.PID()}}
			return runOverload(cmd, cfg, asJSON)
		})
	}
	return cmd
}

func runOverload(cmd *cobra.Command, cfg sandboxbench.OverloadConfig, asJSON bool) error {
	cfg.Note = func(round int, l sandboxbench.OverloadLevel) {
		fmt.Fprintf(cmd.ErrOrStderr(), "round %d, %d callers for each core: %.1f calls/s, %v CPU a call, %d failed\n",
			round, l.Load, l.Figures.PerSecond, round10(l.Figures.CPU), l.Figures.Failed)
	}
	levels, err := sandboxbench.Overload(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		err = cli.PrintJSON(out, levels)
	} else {
		fmt.Fprintln(out, "| callers a core | callers | good | failed | calls/s | p50 | p99 | CPU a good call | calls/s ratio | calls a CPU second, ratio |")
		fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
		for _, l := range levels {
			fmt.Fprintf(out, "| %d | %d | %d | %d %s | %.1f | %v | %v | %v | %.2f | %.2f |\n", l.Load, l.Callers, l.Good, l.Failed, kinds(l.Kinds),
				float64(time.Second)/float64(l.Each), round10(l.Figures.P50), round10(l.Figures.P99), round10(l.CPU), l.RateRatio, l.CPURatio)
		}
	}
	for _, l := range levels {
		if err == nil && !l.Holds() {
			err = errors.New("the service did not hold its goodput under overload")
		}
	}
	return err
}

// round10 is for programs of some hundred milliseconds.
func round10(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

func kinds(failed map[string]int) string {
	if len(failed) == 0 {
		return ""
	}
	return fmt.Sprint(failed)
}
