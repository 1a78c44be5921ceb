package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/trainer/checkpoint"
)

func runCheckpointsCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "checkpoints RUN", Short: "List the checkpoints of a run, their size and why they are kept", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		checkpoints, err := r.Checkpoints(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), checkpoints)
		}
		return printCheckpoints(cmd.OutOrStdout(), r.Plan.SFTSteps, checkpoints)
	}
	return cmd
}

func printCheckpoints(out io.Writer, sft int, checkpoints []history.Checkpoint) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tCURSOR\tSIZE\tEPOCH\tKEPT")
	for _, r := range checkpoints {
		step := fmt.Sprint(r.Step)
		if r.Cursor <= sft && sft > 0 {
			step = fmt.Sprintf("sft %d/%d", r.Cursor, sft)
		}
		if r.Damage != "" {
			fmt.Fprintf(t, "%s\t%d\t\t\tdamaged: %s\n", step, r.Cursor, r.Damage)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f MiB\t%d\t%s\n", step, r.Cursor, float64(r.Bytes)/(1<<20), r.Epoch, r.Kept)
	}
	return t.Flush()
}

func runPinCommand(p *config.Process) *cobra.Command {
	var step, reason string
	cmd := &cobra.Command{Use: "pin RUN --step N", Short: "Keep a checkpoint until it is unpinned", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&step, "step", "", "the step of the checkpoint; 0 or sft is the one after SFT")
	cmd.Flags().StringVar(&reason, "reason", "by an operator", "shown by temper run checkpoints")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onCheckpoint(cmd, p, args[0], step, func(store blob.Store, prefix string, cursor int) error {
			return checkpoint.Pin(cmd.Context(), store, prefix, cursor, reason)
		})
	}
	return cmd
}

func runUnpinCommand(p *config.Process) *cobra.Command {
	var step string
	cmd := &cobra.Command{Use: "unpin RUN --step N", Short: "Let a pinned checkpoint go", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&step, "step", "", "the step of the checkpoint; 0 or sft is the one after SFT")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onCheckpoint(cmd, p, args[0], step, func(store blob.Store, prefix string, cursor int) error {
			return checkpoint.Unpin(cmd.Context(), store, prefix, cursor)
		})
	}
	return cmd
}

// onCheckpoint does something to the checkpoint of a step and says what it is
// kept as from then on.
func onCheckpoint(cmd *cobra.Command, p *config.Process, runID, text string, do func(blob.Store, string, int) error) error {
	if text == "" {
		return cli.Usagef("--step is missing: name a step of temper run checkpoints %s", runID)
	}
	step, err := parseStep(text)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := findRun(ctx, p, runID)
	if err != nil {
		return err
	}
	cursor := r.Plan.SFTSteps + step
	err = do(r.Store(), r.CheckpointFolder(), cursor)
	if errors.Is(err, blob.ErrNotExist) {
		return cli.Usagef("run %s has no complete checkpoint of step %d (temper run checkpoints %s lists them): %w", runID, step, runID, err)
	}
	if err != nil {
		return err
	}
	checkpoints, err := r.Checkpoints(ctx)
	if i := slices.IndexFunc(checkpoints, func(c history.Checkpoint) bool { return c.Cursor == cursor }); i >= 0 && err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "checkpoint of step %d is kept: %s\n", step, checkpoints[i].Kept)
	}
	return err
}
