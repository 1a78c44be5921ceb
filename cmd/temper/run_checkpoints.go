package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run/modeldir"
	"temper/internal/service/runclient"
)

func runCheckpointsCommand(p *config.Process) *cobra.Command {
	var pin, unpin, reason string
	cmd := &cobra.Command{
		Use: "checkpoints RUN", Short: "List the checkpoints of a run, their size and why they are kept, or pin one", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&pin, "pin", "", "keep the checkpoint of this step until it is unpinned; 0 or sft is the one after SFT")
	cmd.Flags().StringVar(&unpin, "unpin", "", "let the pinned checkpoint of this step go")
	cmd.Flags().StringVar(&reason, "reason", "by an operator", "why it is pinned, shown in the list")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := onlyOne(cmd, "pin", "unpin", "json"); err != nil {
			return err
		}
		ctx := cmd.Context()
		r, err := runclient.Find(ctx, p, args[0])
		if err != nil {
			return err
		}
		if pin+unpin == "" {
			checkpoints, err := r.Checkpoints(ctx)
			if err != nil {
				return err
			}
			return show(cmd, *asJSON, checkpoints, func(out io.Writer, c []history.Checkpoint) error { return export.Checkpoints(out, r.Plan.SFTSteps, c) })
		}
		step, from, err := modeldir.ParseStep(pin + unpin)
		if err != nil || from != "" {
			return cli.Usagef("--pin, --unpin: is %q, want the number of a step, or sft", pin+unpin)
		}
		kept := ""
		if pin != "" {
			kept, err = runclient.Pin(ctx, r, step, reason)
		} else {
			kept, err = runclient.Unpin(ctx, r, step)
		}
		if err == nil && kept != "" {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "checkpoint of step %d is kept: %s\n", step, kept)
		}
		return err
	}
	return cmd
}
