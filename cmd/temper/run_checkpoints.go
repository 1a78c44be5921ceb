package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/trainer/checkpoint"
)

func runCheckpointsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoints RUN", Short: "List the checkpoints of a run, their size and why they are kept", Args: cobra.ExactArgs(1),
	}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		layout, err := existingRun(cmd.Context(), store, args[0])
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "CURSOR\tSTEP\tSIZE\tEPOCH\tKEPT AS")
		if err := checkpointLines(cmd.Context(), t, store, layout); err != nil {
			return err
		}
		return t.Flush()
	}
	return cmd
}

func checkpointLines(ctx context.Context, t *tabwriter.Writer, store blob.Store, layout artifact.Layout) error {
	cfg, err := storedConfig(ctx, store, layout)
	if err != nil {
		return err
	}
	entries, err := checkpoint.List(ctx, store, layout.Checkpoints())
	if err != nil {
		return err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	kept, err := activities.Retained(ctx, store, layout.RunID, cfg, cursors)
	if err != nil {
		return err
	}
	for _, e := range entries {
		d, err := checkpoint.Describe(ctx, store, e.Ref)
		if err != nil {
			fmt.Fprintf(t, "%d\t\t\t\tdamaged: %v\n", e.Step, err)
			continue
		}
		fmt.Fprintf(t, "%d\t%d\t%.1f MiB\t%d\t%s\n", e.Step, max(0, e.Step-cfg.SFT.Steps), float64(d.Size)/(1<<20), d.Epoch, cmp.Or(kept[e.Step], "until the next save"))
	}
	return nil
}

// storedConfig reads the configuration that a run was started with.
func storedConfig(ctx context.Context, store blob.Store, layout artifact.Layout) (config.Run, error) {
	data, err := blob.ReadKey(ctx, store, layout.Config())
	if err != nil {
		return config.Run{}, err
	}
	return config.Load(layout.Config(), data, nil)
}

func runPinCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "pin RUN CURSOR", Short: "Keep a checkpoint until it is unpinned", Args: cobra.ExactArgs(2)}
	p := processFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "by an operator", "shown by temper run checkpoints")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onCheckpoint(cmd, p, args, func(store blob.Store, prefix string, cursor int) error {
			return checkpoint.Pin(cmd.Context(), store, prefix, cursor, reason)
		})
	}
	return cmd
}

func runUnpinCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "unpin RUN CURSOR", Short: "Let a pinned checkpoint go", Args: cobra.ExactArgs(2)}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onCheckpoint(cmd, p, args, func(store blob.Store, prefix string, cursor int) error {
			return checkpoint.Unpin(cmd.Context(), store, prefix, cursor)
		})
	}
	return cmd
}

// onCheckpoint does something to the checkpoint that the arguments name.
func onCheckpoint(cmd *cobra.Command, p *config.Process, args []string, do func(blob.Store, string, int) error) error {
	cursor, err := strconv.Atoi(args[1])
	if err != nil || cursor < 0 {
		return usagef("cursor %q: want a number of temper run checkpoints %s", args[1], args[0])
	}
	store, err := openStore(cmd.Context(), p)
	if err != nil {
		return err
	}
	layout, err := existingRun(cmd.Context(), store, args[0])
	if err != nil {
		return err
	}
	err = do(store, layout.Checkpoints(), cursor)
	if errors.Is(err, blob.ErrNotExist) {
		return usagef("run %s has no complete checkpoint of cursor %d (temper run checkpoints %s lists them): %w", args[0], cursor, args[0], err)
	}
	return err
}
