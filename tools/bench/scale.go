package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/tools/bench/sandboxbench"
)

func scaleCommand() *cobra.Command {
	var cfg sandboxbench.ScaleConfig
	var asJSON bool
	var memoryMiB int64
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Submit a training step's calls at once through a gateway, kill a node and add one on the way",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Python, "python", config.DefaultProcess().Python, "interpreter of the nodes (TEMPER_PYTHON)")
	f.IntVar(&cfg.Calls, "calls", 45000, "calls submitted at once")
	f.IntVar(&cfg.Nodes, "nodes", 3, "nodes at the start")
	f.IntVar(&cfg.Slots, "slots", 64, "programs that a node runs at a time")
	f.IntVar(&cfg.Queue, "queue", 1024, "programs that may wait at a node")
	f.Int64Var(&memoryMiB, "memory-mib", 2048, "cap of the Go heap of each process, and of each cgroup")
	f.StringVar(&cfg.Cgroups, "cgroups", "", "folder of a memory controller in which each node gets a cgroup with that cap")
	f.DurationVar(&cfg.Timeout, "timeout", 30*time.Minute, "of the whole")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Calls < 1 || cfg.Nodes < 1 {
			return cli.Usagef("--calls is %d and --nodes %d, want at least 1 of each", cfg.Calls, cfg.Nodes)
		}
		if err := cli.FindPython(cfg.Python); err != nil {
			return cli.Usage(err)
		}
		var err error
		if cfg.Binary, err = temperBinary(); err != nil {
			return err
		}
		cfg.MemoryMax = memoryMiB << 20
		start := time.Now()
		cfg.Note = func(text string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%8v %s\n", time.Since(start).Round(10*time.Millisecond), text)
		}
		return runScale(cmd, cfg, asJSON)
	}
	return cmd
}

func runScale(cmd *cobra.Command, cfg sandboxbench.ScaleConfig, asJSON bool) error {
	r, err := sandboxbench.Scale(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON {
		if err := cli.PrintJSON(out, r); err != nil {
			return err
		}
	} else {
		printFigures(out, r.Figures)
		fmt.Fprintf(out, "answers: %d lost, %d duplicated, %d unasked, %d of another call\n", r.Lost, r.Duplicated, r.Unasked, r.Foreign)
		fmt.Fprintf(out, "%-10s %10s %16s %12s\n", "memory", "peak RSS", "peak of the tree", "of cgroup")
		for _, m := range r.Members {
			note := ""
			switch {
			case m.Killed:
				note = "killed on the way"
			case m.Added:
				note = "added on the way"
			}
			fmt.Fprintf(out, "%-10s %6d MiB %12d MiB %8d MiB %s\n", m.Name, m.PeakRSS>>20, m.PeakTree>>20, m.PeakCgroup>>20, note)
		}
	}
	if !r.Exact() {
		return errors.New("not every call was answered exactly once with its own answer")
	}
	return nil
}
