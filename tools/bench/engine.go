package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/enginebench"
	"temper/tools/bench/trainerbench"
	"temper/trainer/cpu/kernels"
)

// engineOptions say what `temper-bench engine` measures.
type engineOptions struct {
	plan              enginebench.Plan
	sizes             []string
	batches, contexts []int
	newTokens         int
	llama             enginebench.LlamaCPP
	cpuProfile        string
	asJSON            bool
}

func engineCommand() *cobra.Command {
	o := engineOptions{plan: enginebench.Plan{Seed: 1}}
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Measure how fast the policy engine decodes, beside llama.cpp",
		Long: `Decodes random prompts with start weights, or with those of a model directory; nothing is trained. Each sequence of a batch has a prompt
and --new-tokens that fill the context. Rates are those of the tokens after the first one, in which
no prompt is read. "first" is the time until half of the batch had its first token.

CPU seconds are those of this process for our engine and of the whole server for the others; they
mean something on a busy machine, where wall time does not. Contenders take turns and the rows are
medians of --rounds, after one that warms up. "memory" is the most that the contender's process had
resident so far, mapped files included. The digest is of all sampled tokens and the bits of
their log-probabilities: two builds with one digest compute the same bits.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.sizes, "sizes", []string{"1m", "5m", "20m"}, "networks, each as in temper-bench trainer --model (dimensions of one network alone are given with spaces)")
	f.IntSliceVar(&o.batches, "batches", []int{1, 16, 64}, "sequences at once")
	f.IntSliceVar(&o.contexts, "contexts", []int{128, 2048}, "tokens at which each sequence ends")
	f.IntVar(&o.newTokens, "new-tokens", 104, "tokens that are decoded for each sequence")
	f.IntVar(&o.plan.Rounds, "rounds", 5, "rounds, of which the median counts")
	f.IntVar(&o.plan.Shards, "shards", 0, "shards of our engine; 0 = its own choice")
	f.Uint64Var(&o.plan.Seed, "seed", 1, "draws weights and prompts")
	f.StringVar((*string)(&o.plan.Kernels), "kernels", string(kernels.Native), "kernels of the CPU backend, native or portable")
	f.StringVar(&o.llama.URL, "llamacpp", "", "URL of a llama.cpp server with a model of the same shape (for one of --sizes)")
	f.IntVar(&o.llama.PID, "llamacpp-pid", 0, "process of that server, for its CPU seconds")
	f.StringVar(&o.plan.LlamaPython, "llamacpp-python", "", "Python with the package xllamacpp, to run its server on one thread beside, anew for each case")
	f.StringVar(&o.plan.Backend, "backend", "", "backend of our engine, as of temper rollout; empty = go")
	f.IntVar(&o.plan.Ahead, "ahead", 0, "tokens of a sequence that an XLA device makes at a time; 0 = its own choice")
	f.BoolVar(&o.plan.Graph, "graph", false, "keep our passes in the graph of the backend")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "file for a CPU profile of everything that is measured")
	f.BoolVar(&o.asJSON, "json", false, "print JSON, one line a row")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.carryOut(cmd) }
	return cmd
}

// plans are those of the sizes.
func (o *engineOptions) plans() ([]enginebench.Plan, error) {
	var out []enginebench.Plan
	for _, size := range o.sizes {
		p := o.plan
		var err error
		if p.Model, err = trainerbench.Model(size); err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		if files, _ := filepath.Glob(filepath.Join(size, "*.safetensors")); len(files) > 0 { // a fault of the pattern is a folder without weights
			p.Dir = size
		}
		for _, context := range o.contexts {
			for _, batch := range o.batches {
				p.Cases = append(p.Cases, enginebench.Case{Size: size, Batch: batch, Context: context, NewTokens: o.newTokens})
			}
		}
		if err := p.Validate(); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (o *engineOptions) carryOut(cmd *cobra.Command) error {
	if o.llama.URL != "" && o.plan.LlamaPython != "" {
		return cli.Usagef("--llamacpp and --llamacpp-python: want one of them")
	}
	if o.llama.URL != "" && len(o.sizes) != 1 {
		return cli.Usagef("--llamacpp serves one model: name its size alone in --sizes, not %d", len(o.sizes))
	}
	plans, err := o.plans()
	if err != nil {
		return cli.Usage(err)
	}
	stop, err := profile(o.cpuProfile)
	if err != nil {
		return err
	}
	defer stop()
	out := cmd.OutOrStdout()
	report := func(r enginebench.Row) { printEngineRow(out, r) }
	if o.asJSON {
		report = func(r enginebench.Row) { _ = cli.PrintJSON(out, r) } // a closed pipe ends the command at its next line
	} else {
		fmt.Fprintf(out, "%-6s %6s %8s  %-12s %10s %12s %10s %10s %7s  %s\n", "size", "batch", "context", "engine", "tokens/s", "tokens/CPU-s", "first", "memory", "ratio", "digest")
	}
	for _, p := range plans {
		if err := o.measure(cmd.Context(), p, report); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one plan beside the other engines that are asked for.
func (o *engineOptions) measure(ctx context.Context, p enginebench.Plan, report func(enginebench.Row)) error {
	if o.llama.URL != "" {
		p.Opponents = append(p.Opponents, o.llama)
	}
	return enginebench.Measure(ctx, p, report)
}

// profile writes a CPU profile to a file until stop is called; without a name it
// does nothing.
func profile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close() // the profile is complete or is not read
	}, nil
}

func printEngineRow(out io.Writer, r enginebench.Row) {
	ratio := ""
	if r.Ratio > 0 {
		ratio = fmt.Sprintf("%.2fx", r.Ratio)
	}
	memory := ""
	if r.PeakRSS > 0 {
		memory = fmt.Sprintf("%d MiB", r.PeakRSS>>20)
	}
	digest := r.Digest
	if r.Programs > 0 {
		digest += fmt.Sprintf("  host %.1f %%, %.4f transfers a token, %d programs", 100*r.HostShare, r.Transfers, r.Programs)
	}
	fmt.Fprintf(out, "%-6s %6d %8d  %-12s %10.5g %12.5g %8.1fms %10s %7s  %s\n",
		r.Size, r.Batch, r.Context, r.Contender, r.TokensPerSecond, r.TokensPerCPUSecond, r.FirstTokenMS, memory, ratio, digest)
}
