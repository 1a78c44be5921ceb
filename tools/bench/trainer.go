package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/tools/bench/trainerbench"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
)

// trainerReport is what temper-bench trainer prints as JSON.
type trainerReport struct {
	Train  trainerbench.Report        `json:"train"`
	Decode *trainerbench.DecodeReport `json:"decode,omitempty"`
}

func trainerCommand() *cobra.Command {
	cfg := trainerbench.Config{Seed: 1}
	var model, mesh, cpuProfile string
	var slots int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "trainer",
		Short: "Measure training steps and decoding, and the share of this machine's matrix-product speed that they reach",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&model, "model", "1m", "1m, 5m, dimensions such as d128,L4,H4,KV2,E32,ff384,V1024, a Qwen3 size such as 0.6b, or a folder with a config.json")
	f.IntVar(&cfg.Batch, "batch", 16, "sequences of a step")
	f.IntVar(&cfg.Tokens, "tokens", 256, "predicted tokens of a sequence")
	f.StringVar(&cfg.Backend, "backend", "go", "device of the trainer and the engine")
	f.StringVar(&mesh, "mesh", "", "devices of an XLA backend for training, like data=2,model=2; empty = one device")
	f.StringVar(&cfg.Compute, "compute", "float32", "type in which the trainer multiplies matrices, float32 or bfloat16")
	f.StringVar((*string)(&cfg.Kernels), "kernels", string(kernels.Native), "kernels of the CPU backend, native or portable (trainer.kernels)")
	f.IntVar(&cfg.MicrobatchTokens, "microbatch-tokens", 0, "most tokens of a device pass; 0 = the whole batch")
	f.BoolVar(&cfg.Remat, "remat", false, "recompute activations in the backward pass")
	f.IntVar(&cfg.Rounds, "rounds", 7, "rounds, of which the median counts")
	f.IntVar(&cfg.Steps, "steps", 2, "training steps of a round")
	f.IntVar(&slots, "slots", 16, "sequences that the engine decodes at once; 0 = do not measure decoding")
	f.StringVar(&cfg.Torch, "torch", "", "Python with torch, whose training steps (eager and compiled) take turns with ours")
	f.StringVar(&cpuProfile, "cpuprofile", "", "file for the CPU profile of the training rounds")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if cfg.Model, err = trainerbench.Model(model); err != nil {
			return cli.Usagef("--model: %w", err)
		}
		if cfg.Mesh, err = device.ParseMesh(mesh); err != nil {
			return cli.Usagef("--mesh: %w", err)
		}
		if slots < 0 {
			return cli.Usagef("--slots is %d, want at least 0", slots)
		}
		if err := cfg.Validate(); err != nil {
			return cli.Usage(err)
		}
		r, err := measureTrainer(cmd, cfg, cpuProfile, slots)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), r)
		}
		printTrainer(cmd.OutOrStdout(), r)
		return nil
	}
	return cmd
}

// measureTrainer profiles the training rounds and measures decoding after them.
func measureTrainer(cmd *cobra.Command, cfg trainerbench.Config, cpuProfile string, slots int) (trainerReport, error) {
	var profile bytes.Buffer
	train, err := trainerbench.Train(cmd.Context(), cfg, func(run func() error) error {
		if err := pprof.StartCPUProfile(&profile); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return run()
	})
	if err != nil {
		return trainerReport{}, err
	}
	if train.Shares, err = trainerbench.Shares(profile.Bytes()); err != nil {
		return trainerReport{}, err
	}
	if cpuProfile != "" {
		if err := os.WriteFile(cpuProfile, profile.Bytes(), 0o600); err != nil {
			return trainerReport{}, err
		}
	}
	r := trainerReport{Train: train}
	if slots > 0 {
		d, err := trainerbench.Decode(cmd.Context(), cfg, slots)
		if err != nil {
			return trainerReport{}, err
		}
		r.Decode = &d
	}
	return r, nil
}

func printTrainer(out io.Writer, r trainerReport) {
	t := r.Train
	fmt.Fprintf(out, "%s, %.2fM parameters, %d x %d tokens, remat %v, %d graphs\n",
		t.Backend, float64(t.Parameters)/1e6, t.Batch, t.Tokens, t.Remat, t.Graphs)
	if t.Kernels != "" {
		fmt.Fprintf(out, "bits:   %s\n", t.Kernels)
	}
	fmt.Fprintf(out, "train:  %8.0f tokens/s %8.0f tokens/CPU-s; a step %v, CPU %v, the first %v\n", t.TokensPerSecond, t.TokensPerCPUSecond,
		t.Step.Wall.Round(time.Millisecond), t.Step.CPU.Round(time.Millisecond), t.First.Wall.Round(time.Millisecond))
	for _, p := range t.Torch {
		fmt.Fprintf(out, "torch:  %8.0f tokens/s %8.0f tokens/CPU-s; %s %s, %s, peak RSS %d MiB; we make %.2f times its tokens by wall time, %.2f by CPU time\n",
			p.TokensPerSecond, p.TokensPerCPUSecond, p.Mode, p.Version, p.Device, p.PeakRSS>>20, p.Ratio, p.CPURatio)
	}
	if d := r.Decode; d != nil {
		fmt.Fprintf(out, "decode: %8.0f tokens/s %8.0f tokens/CPU-s; %d sequences at once\n", d.TokensPerSecond, d.TokensPerCPUSecond, d.Slots)
	}
	fmt.Fprintf(out, "work:   %.1f GFLOP a step, %.1f GFLOP/s", t.FLOPs/1e9, t.FLOPsPerSecond/1e9)
	if p := t.Peak; p != nil {
		fmt.Fprintf(out, "; %.0f %% of %.0f GFLOP/s a core in CPU time, %.0f %% of %.0f on %d cores in wall time",
			100*t.PeakShare, p.PerCore/1e9, 100*t.WallShare, p.Total/1e9, p.Cores)
	}
	fmt.Fprintf(out, "\nmemory: peak RSS %d MiB\nCPU:    ", t.PeakRSS>>20)
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(t.Shares), func(a, b string) int {
		if t.Shares[a] > t.Shares[b] {
			return -1
		}
		return 1
	}) {
		parts = append(parts, fmt.Sprintf("%s %.0f %%", name, 100*t.Shares[name]))
	}
	fmt.Fprintf(out, "%s\nloss:   %.6f\n", strings.Join(parts, ", "), t.Losses)
}
