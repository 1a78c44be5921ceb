package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/loadgen"
)

// loadFlags describe a load on a service.
type loadFlags struct {
	service  serviceFlags
	rate     float64
	duration time.Duration
	seed     uint64
	mix      string
	program  string
	want     string
	timeout  time.Duration
	patience time.Duration
}

func (l *loadFlags) register(cmd *cobra.Command) {
	l.service.register(cmd)
	f := cmd.Flags()
	f.Float64Var(&l.rate, "rate", 0, "open loop: mean arrivals a second")
	f.DurationVar(&l.duration, "duration", 10*time.Second, "open loop: its length")
	f.Uint64Var(&l.seed, "seed", 1, "draws the arrivals and the order of a mix")
	f.StringVar(&l.mix, "mix", "trivial", "programs: "+strings.Join(loadgen.Mixes(), ", ")+", or one hostile program")
	f.StringVar(&l.program, "program", "", "file with the program of every call, instead of --mix")
	f.StringVar(&l.want, "want", "", "output that --program must give; empty = any")
	f.DurationVar(&l.patience, "patience", 0, "how long a call that got no answer is sent again, as rollouts do")
	f.DurationVar(&l.timeout, "timeout", 10*time.Minute, "how long a call is waited for")
}

// load turns the flags into a load.
func (l *loadFlags) load(o sandboxFlags) (loadgen.Load, error) {
	load := loadgen.Load{
		Concurrency: o.concurrency, Calls: o.calls, Rate: l.rate, Duration: l.duration, Seed: l.seed,
		Timeout: l.timeout, Patience: l.patience, Prefix: uniquePrefix("load"),
	}
	if l.rate == 0 && load.Concurrency == 0 {
		load.Concurrency = runtime.NumCPU()
	}
	if l.program != "" {
		code, err := os.ReadFile(l.program)
		if err != nil {
			return load, cli.Usagef("--program: %w", err)
		}
		load.Mix = loadgen.Only(loadgen.Program{Name: l.program, Code: string(code), Want: strings.TrimSpace(l.want)})
		return load, nil
	}
	mix, err := loadgen.NamedMix(l.mix, l.seed)
	if err != nil {
		return load, cli.Usagef("--mix: %w", err)
	}
	load.Mix = mix
	return load, nil
}

func runLoad(cmd *cobra.Command, o sandboxFlags) error {
	for _, name := range []string{"python", "code"} {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s is for the comparison without --url", name)
		}
	}
	load, err := o.load.load(o)
	if err != nil {
		return err
	}
	target, cpu, err := o.load.service.connect()
	if err != nil {
		return err
	}
	defer target.Close()
	if err := load.Check(target); err != nil {
		return cli.Usage(err)
	}
	f, err := loadgen.Measure(cmd.Context(), target, load, cpu)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), f)
	} else {
		printFigures(cmd.OutOrStdout(), f)
	}
	if err == nil && f.Calls > 0 && f.Failed == f.Calls {
		err = fmt.Errorf("no call of %d was answered as expected", f.Calls)
	}
	return err
}

func printFigures(out io.Writer, f loadgen.Figures) {
	fmt.Fprintf(out, "%d calls in %v: %.1f good calls/s, %d wrong, %d lost, %d sent again\n",
		f.Calls, f.Elapsed.Round(time.Millisecond), f.PerSecond, f.Wrong, f.Lost, f.Resent)
	fmt.Fprintf(out, "latency: mean %v, p50 %v, p90 %v, p99 %v, max %v; p99 with failed calls %v; service %v\n",
		round(f.Mean), round(f.P50), round(f.P90), round(f.P99), round(f.Max), round(f.P99All), round(f.Service))
	if f.CPU > 0 {
		fmt.Fprintf(out, "CPU a call: %v of the service, %v of the client\n", round(f.CPU), round(f.ClientCPU))
	} else {
		fmt.Fprintf(out, "CPU a call: %v of the client\n", round(f.ClientCPU))
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Kinds)) {
		fmt.Fprintf(out, "failed: %d %s\n", f.Kinds[kind], kind)
	}
	if f.Failure != "" {
		fmt.Fprintf(out, "first failure: %s\n", f.Failure)
	}
}
