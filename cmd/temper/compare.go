package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
)

func compareCommand(p *config.Process) *cobra.Command {
	var asCSV, asJSON bool
	cmd := &cobra.Command{
		Use:   "compare RUN...",
		Short: "Compare finished runs: tool errors in correct trajectories, accuracy, length",
		Args:  cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print the series of all runs as CSV")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summaries and series of all runs as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := onlyOne(cmd, "csv", "json"); err != nil {
			return err
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		var runs []export.Compared
		for _, id := range args {
			r, err := compared(cmd.Context(), store, id)
			if err != nil {
				return err
			}
			runs = append(runs, r)
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), runs)
		}
		if asCSV {
			return export.CSV(cmd.OutOrStdout(), runs)
		}
		return export.Compare(cmd.OutOrStdout(), runs)
	}
	return cmd
}

func compared(ctx context.Context, store blob.Store, id string) (export.Compared, error) {
	r, err := openRun(ctx, store, id)
	if err != nil {
		return export.Compared{}, err
	}
	summary, done, err := r.Summary(ctx)
	if err == nil && !done {
		err = cli.Usagef("run %q has no summary yet", id)
	}
	if err != nil {
		return export.Compared{}, err
	}
	cfg, err := r.Config(ctx)
	if err != nil {
		return export.Compared{}, err
	}
	records, err := r.Records(ctx)
	return export.Compared{RunID: id, Label: label(cfg), Summary: summary, Records: records}, err
}

func label(cfg config.Run) string {
	roc := "RoC off"
	if cfg.RL.RoC.Enabled {
		roc = "RoC " + cfg.RL.RoC.Mode
	}
	return fmt.Sprintf("%s, seed %d", roc, cfg.Seed)
}
