package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
	"temper/internal/service/runclient"
	"temper/workers"
)

// verifying holds the flags of a check.
type verifying struct {
	chain.Options
	steps       []string
	sample      string
	seed        uint64
	backend     string
	concurrent  int
	repair, dry bool
}

func runVerifyCommand(p *config.Process) *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use: "verify RUN", Short: "Check the chain of a run, make steps again and compare them, or repair what is damaged", Args: cobra.ExactArgs(1),
		Long: `Checks the chain of a run: each manifest against the one after it, and what the manifests name against its SHA-256.
Of large objects only the size is asked for; temper store verify RUN reads every byte. A run that has not ended is
checked up to its newest manifest.

The link is equal for two runs of one id, configuration and seed that made the same bits. The seal is unique to this
run. Note either to find out later, by --head, whether the run is still the same.

With --step or --sample it also makes steps again: it samples with the policy before, from the same seed, learns from
the nearest checkpoint on, and compares every object. Nothing of the run is written. It starts a sandbox of its own
unless --sandbox names one.

With --repair it makes again what is damaged or missing, and puts back what comes out with the recorded bytes.`,
	}
	f := cmd.Flags()
	cli.PythonFlag(f, p)
	f.StringSliceVar(&v.steps, "step", nil, "make these steps again on this machine and compare every object: numbers and ranges, such as 3,5-7")
	f.StringVar(&v.sample, "sample", "", "make a share of the steps again, such as 1%; at least one")
	f.Uint64Var(&v.seed, "sample-seed", 0, "chooses the steps of --sample")
	f.StringVar(&v.backend, "backend", "go", "GoMLX backend that makes steps again")
	f.IntVar(&v.concurrent, "concurrent-rollouts", workers.DefaultRollouts, "trajectories that live at a time when steps are made again")
	f.StringVar(&v.Head, "head", "", "a link or a seal that the chain must have, or its first 8 digits or more")
	f.BoolVar(&v.repair, "repair", false, "make again what is damaged or missing")
	f.BoolVar(&v.dry, "dry-run", false, "with --repair, put nothing back")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.check(cmd); err != nil {
			return err
		}
		r, err := runclient.Find(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		if v.repair {
			return v.repairRun(cmd, p, r, *asJSON)
		}
		return v.verify(cmd, p, r, *asJSON)
	}
	return cmd
}

// check finds mistakes in the flags.
func (v *verifying) check(cmd *cobra.Command) error {
	if n := len(v.Head); n > 0 && n < 8 || strings.Trim(v.Head, "0123456789abcdef") != "" {
		return cli.Usagef("--head is %q, want 8 to 64 hexadecimal digits of a link or a seal", v.Head)
	}
	for _, group := range [][]string{{"step", "sample", "repair"}, {"head", "repair"}} {
		if err := onlyOne(cmd, group...); err != nil {
			return err
		}
	}
	if v.dry && !v.repair {
		return cli.Usagef("--dry-run is for --repair")
	}
	if _, err := replay.ParseSteps(v.steps); err != nil {
		return cli.Usagef("--step: %w", err)
	}
	if v.concurrent < 1 {
		return cli.Usagef("--concurrent-rollouts: is %d, want at least 1", v.concurrent)
	}
	if v.sample == "" {
		return nil
	}
	if _, err := replay.ParseShare(v.sample); err != nil {
		return cli.Usagef("--sample: %w", err)
	}
	return nil
}

func (v *verifying) verify(cmd *cobra.Command, p *config.Process, r *history.Run, asJSON bool) error {
	ctx := cmd.Context()
	v.CanRemake = func(key string) bool { return replay.CanRemake(r.ID(), key) }
	found, err := chain.Verify(ctx, r.Store(), r.ID(), v.Options)
	if err != nil {
		return err
	}
	out := struct {
		chain.Report
		Remade []replay.Report `json:"remade,omitempty"`
	}{Report: found}
	if len(v.steps) > 0 || v.sample != "" {
		steps, err := replay.Choose(ctx, r.Store(), r.ID(), v.steps, v.sample, v.seed)
		if err != nil {
			return err
		}
		bench, stop, err := v.bench(cmd, p, r)
		if err != nil {
			return err
		}
		defer stop()
		if out.Remade, err = bench.Steps(ctx, r.ID(), steps); err != nil {
			return err
		}
	}
	if asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		err = found.Print(cmd.OutOrStdout())
		for i := range out.Remade {
			out.Remade[i].Print(cmd.OutOrStdout())
		}
	}
	return errors.Join(err, found.Err(), replay.DamagedSteps(out.Remade))
}

// repairRun makes all damaged and missing objects of the run again.
func (v *verifying) repairRun(cmd *cobra.Command, p *config.Process, r *history.Run, asJSON bool) error {
	bench, stop, err := v.bench(cmd, p, r)
	if err != nil {
		return err
	}
	defer stop()
	found, err := bench.RepairAll(cmd.Context(), r.Store(), r.ID(), v.dry)
	if err != nil {
		return err
	}
	err = show(cmd, asJSON, found, func(out io.Writer, found replay.Repairs) error { found.Print(out, v.dry); return nil })
	if n := found.Left(); err == nil && n > 0 && !v.dry {
		err = fmt.Errorf("%d objects of run %s are still damaged or missing", n, r.ID())
	}
	return err
}

// bench returns what makes steps of a store again.
func (v *verifying) bench(cmd *cobra.Command, p *config.Process, r *history.Run) (*replay.Bench, func(), error) {
	executor, stop, err := workers.OpenSandbox(cmd.Context(), p, cmd.Flags().Changed("sandbox"), 0)
	if err != nil {
		return nil, nil, err
	}
	return workers.Remake(workers.RemakeOptions{
		Store: r.Store(), Backend: v.backend, Concurrent: v.concurrent, Executor: executor,
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}), stop, nil
}
