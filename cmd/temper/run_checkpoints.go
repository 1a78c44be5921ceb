package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/checkpoint"
)

func runCheckpointsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "checkpoints RUN", Short: "List the checkpoints of a run, their size and why they are kept", Args: cobra.ExactArgs(1),
	}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, layout, err := openRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		rows, err := checkpointRows(cmd.Context(), store, layout)
		if err != nil {
			return err
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), rows)
		}
		return printCheckpoints(cmd.OutOrStdout(), rows)
	}
	return cmd
}

// checkpointRow is a line of temper run checkpoints.
type checkpointRow struct {
	// Step is that of RL; 0 up to the end of SFT.
	Step int `json:"step"`
	// Cursor counts all updates, those of SFT too.
	Cursor int    `json:"cursor"`
	Bytes  int64  `json:"bytes"`
	Epoch  int64  `json:"epoch"` // of the lease under which it was written
	Kept   string `json:"kept"`
	// Damage is what is wrong with a manifest that cannot be read.
	Damage string `json:"damage,omitempty"`
	sft    int
}

func printCheckpoints(out io.Writer, rows []checkpointRow) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tCURSOR\tSIZE\tEPOCH\tKEPT")
	for _, r := range rows {
		step := fmt.Sprint(r.Step)
		if r.Cursor <= r.sft && r.sft > 0 {
			step = fmt.Sprintf("sft %d/%d", r.Cursor, r.sft)
		}
		if r.Damage != "" {
			fmt.Fprintf(t, "%s\t%d\t\t\tdamaged: %s\n", step, r.Cursor, r.Damage)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f MiB\t%d\t%s\n", step, r.Cursor, float64(r.Bytes)/(1<<20), r.Epoch, r.Kept)
	}
	return t.Flush()
}

func checkpointRows(ctx context.Context, store blob.Store, layout artifact.Layout) ([]checkpointRow, error) {
	cfg, err := storedConfig(ctx, store, layout)
	if err != nil {
		return nil, err
	}
	entries, err := checkpoint.List(ctx, store, layout.Checkpoints())
	if err != nil {
		return nil, err
	}
	var cursors []int
	for _, e := range entries {
		cursors = append(cursors, e.Step)
	}
	newest := cfg.SFT.Steps
	if len(cursors) > 0 {
		newest = cursors[len(cursors)-1]
	}
	cfg = cfg.At(max(0, newest-cfg.SFT.Steps)) // as the newest save saw it
	kept, err := run.Retained(ctx, store, layout.RunID, cfg, cursors)
	if err != nil {
		return nil, err
	}
	rows := []checkpointRow{}
	for _, e := range entries {
		r := checkpointRow{Step: max(0, e.Step-cfg.SFT.Steps), Cursor: e.Step, sft: cfg.SFT.Steps, Kept: cmp.Or(kept[e.Step], "until the next save")}
		if d, err := checkpoint.Describe(ctx, store, e.Ref); err != nil {
			r.Damage = err.Error()
		} else {
			r.Bytes, r.Epoch = d.Size, d.Epoch
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// storedConfig reads the configuration of a run; its amendments lie beside it.
func storedConfig(ctx context.Context, store blob.Store, layout artifact.Layout) (config.Run, error) {
	plan, ok, err := run.StoredPlan(ctx, store, layout.RunID)
	if err != nil {
		return config.Run{}, err
	}
	ref := plan.Config
	if !ok {
		ref.Key = layout.Config()
	}
	data, err := blob.ReadKey(ctx, store, ref.Key)
	if err != nil {
		return config.Run{}, err
	}
	cfg, err := config.Load(ref.Key, data, nil)
	return cfg, err
}

func runPinCommand() *cobra.Command {
	var step, reason string
	cmd := &cobra.Command{Use: "pin RUN --step N", Short: "Keep a checkpoint until it is unpinned", Args: cobra.ExactArgs(1)}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().StringVar(&step, "step", "", "the step of the checkpoint; 0 or sft is the one after SFT")
	cmd.Flags().StringVar(&reason, "reason", "by an operator", "shown by temper run checkpoints")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onCheckpoint(cmd, p, args[0], step, func(store blob.Store, prefix string, cursor int) error {
			return checkpoint.Pin(cmd.Context(), store, prefix, cursor, reason)
		})
	}
	return cmd
}

func runUnpinCommand() *cobra.Command {
	var step string
	cmd := &cobra.Command{Use: "unpin RUN --step N", Short: "Let a pinned checkpoint go", Args: cobra.ExactArgs(1)}
	p := cli.ProcessFlags(cmd)
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
	store, layout, err := openRun(ctx, p, runID)
	if err != nil {
		return err
	}
	cfg, err := storedConfig(ctx, store, layout)
	if err != nil {
		return err
	}
	cursor := cfg.SFT.Steps + step
	err = do(store, layout.Checkpoints(), cursor)
	if errors.Is(err, blob.ErrNotExist) {
		return cli.Usagef("run %s has no complete checkpoint of step %d (temper run checkpoints %s lists them): %w", runID, step, runID, err)
	}
	if err != nil {
		return err
	}
	rows, err := checkpointRows(ctx, store, layout)
	if i := slices.IndexFunc(rows, func(r checkpointRow) bool { return r.Cursor == cursor }); i >= 0 && err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "checkpoint of step %d is kept: %s\n", step, rows[i].Kept)
	}
	return err
}
