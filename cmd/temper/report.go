package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/proc/buildinfo"
	"temper/ui"
)

func reportCommand(p *config.Process) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "report RUN... -o DIR", Short: "Write the story of runs as files: one HTML page a run, its series as CSV and for TensorBoard", Args: cobra.MinimumNArgs(1),
		Long: `Writes for each run DIR/RUN.html, one page that needs no other file and prints on paper, DIR/RUN.csv with all
series, and DIR/RUN/events.out.tfevents..., which TensorBoard reads. The page has the configuration, the curves of
all stages, tool errors, what Resample-on-Correct kept, evaluations, trajectories good and bad, the time and the
head of the run's chain.`,
	}
	cmd.Flags().StringVarP(&dir, "out", "o", "", "folder of the files; it is made where it is not there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return cli.Usagef("--out is missing: name a folder for the report")
		}
		for _, id := range args {
			if err := history.CheckRunID(id); err != nil {
				return cli.Usage(err)
			}
		}
		for _, id := range args {
			r, err := findRun(cmd.Context(), p, id)
			if err == nil {
				err = writeReport(cmd, r, dir)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// writeReport writes the files of one run and prints their names.
func writeReport(cmd *cobra.Command, r *history.Run, dir string) error {
	files, err := ui.Report(cmd.Context(), r, buildinfo.Line())
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return cli.Usage(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), path); err != nil {
			return err
		}
	}
	return nil
}
