package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/sandboxbench"
)

// contestFlags describe a comparison of services.
type contestFlags struct {
	services []string
	programs []string
	plan     sandboxbench.Plan
	asJSON   bool
}

func contestCommand() *cobra.Command {
	var o contestFlags
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Put the same load on several services in turns and print a table",
		Long: `Runs every program at every level on each service, --rounds times, the services taking turns within a
round, and prints the medians. Ratios say how many times better the first service is. A service is

  --service name=NAME,url=URL,api=API[,cpu=PID or cgroup folder]...`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.services, "service", nil, "a service, at least twice; see above")
	f.StringSliceVar(&o.programs, "programs", []string{"trivial", "sympy"}, "programs: trivial, sympy, numpy")
	f.IntSliceVar(&o.plan.Levels, "levels", []int{100, 1000, 5000}, "calls in flight")
	f.IntVar(&o.plan.Rounds, "rounds", 3, "rounds of each level")
	f.IntVar(&o.plan.MinCalls, "min-calls", 400, "calls of a round, and no fewer than are in flight")
	f.DurationVar(&o.plan.Budget, "budget", 10*time.Minute, "skip a level of a service that would take longer a round")
	f.DurationVar(&o.plan.Timeout, "timeout", time.Hour, "how long a call is waited for")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runContest(cmd, o) }
	return cmd
}

func runContest(cmd *cobra.Command, o contestFlags) error {
	if len(o.services) < 2 {
		return cli.Usagef("--service is given %d times, want at least two", len(o.services))
	}
	for _, name := range o.programs {
		mix, err := loadgen.NamedMix(name, 0)
		if err != nil {
			return cli.Usagef("--programs: %w", err)
		}
		o.plan.Programs = append(o.plan.Programs, mix(0))
	}
	contenders := make([]sandboxbench.Contender, len(o.services))
	for i, text := range o.services {
		c, err := parseContender(text)
		if err != nil {
			return cli.Usagef("--service %s: %w", text, err)
		}
		defer c.Target.Close()
		contenders[i] = c
	}
	o.plan.Prefix = uniquePrefix("compare")
	o.plan.Done = func(r sandboxbench.Round) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s at %d, round %d, %s: %.1f calls/s, mean %v, %d lost, %v CPU a call\n",
			r.Program, r.Level, r.Number, r.Contender, r.Figures.PerSecond, round(r.Figures.Mean), r.Figures.Lost, round(r.Figures.CPU))
	}
	cells, err := sandboxbench.Contend(cmd.Context(), contenders, o.plan)
	if o.asJSON {
		return errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), cells))
	}
	printCells(cmd.OutOrStdout(), cells)
	return err
}

// parseContender reads name=..,url=..,api=..,cpu=..
func parseContender(text string) (sandboxbench.Contender, error) {
	var c sandboxbench.Contender
	var s serviceFlags
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "name":
			c.Name = value
		case "url":
			s.url = value
		case "api":
			s.api = value
		case "cpu":
			s.cpuOf = append(s.cpuOf, value)
		default:
			return c, fmt.Errorf("%q: want name, url, api or cpu", key)
		}
	}
	if c.Name == "" || s.api == "" {
		return c, errors.New("name and api must be given")
	}
	cpu, err := loadgen.ParseCPU(s.cpuOf)
	if err != nil {
		return c, err
	}
	c.CPU = cpu
	c.Target, err = loadgen.Connect(s.url, loadgen.Options{API: loadgen.API(s.api), Token: os.Getenv("TEMPER_SANDBOX_TOKEN")})
	return c, err
}

// printCells prints a table that documentation can hold.
func printCells(out io.Writer, cells []sandboxbench.Cell) {
	fmt.Fprintln(out, "| program | in flight | service | calls/s | mean | p50 | p99 | lost of | CPU a good call | calls/s ratio | CPU ratio |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range cells {
		if c.Skipped != "" {
			fmt.Fprintf(out, "| %s | %d | %s | not run: %s | | | | | | | |\n", c.Program, c.Level, c.Contender, c.Skipped)
			continue
		}
		fmt.Fprintf(out, "| %s | %d | %s | %.1f | %v | %v | %v | %d of %d | %v | %s | %s |\n", c.Program, c.Level, c.Contender, c.PerSecond,
			round(c.Mean), round(c.P50), round(c.P99), c.Lost, c.Calls, round(c.CPU), times(c.RateRatio), times(c.CPURatio))
	}
	for _, c := range cells {
		if c.Wrong > 0 {
			fmt.Fprintf(out, "%s at %d, %s: %d wrong, first %s\n", c.Program, c.Level, c.Contender, c.Wrong, c.Failure)
		}
	}
}

func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fx", ratio)
}
