package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/device"
	"temper/trainer/weights/hf"
)

func modelLogitsCommand() *cobra.Command {
	var ids []int32
	var all bool
	var backend string
	cmd := &cobra.Command{
		Use:   "logits DIR",
		Short: "Write the scores over the vocabulary after a sequence of token ids as JSON",
		Long: `Writes {"ids": [...], "positions": [...], "logits": [[...], ...]} to stdout: one row of float32
scores for each position, each number with as many digits as tell it from its neighbours.
The weights are widened to float32 and so is the arithmetic, whatever type the files have.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.Int32SliceVar(&ids, "ids", nil, "token ids, for example 1,2,3")
	f.BoolVar(&all, "all", false, "every position instead of the last")
	f.StringVar(&backend, "backend", "go", "device that computes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := hf.Load(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		defer m.Close() //nolint:errcheck // read only
		if err := m.CheckIDs(ids); err != nil {
			return cli.Usagef("--ids: %w", err)
		}
		rows, first := hf.LastRow, len(ids)-1
		if all {
			rows, first = hf.AllRows, 0
		}
		logits, err := m.Logits(backend, ids, rows)
		if errors.Is(err, device.ErrName) {
			return cli.Usagef("--backend: %w", err)
		}
		if err != nil {
			return err
		}
		out := struct {
			IDs       []int32     `json:"ids"`
			Positions []int       `json:"positions"`
			Logits    [][]float32 `json:"logits"`
		}{IDs: ids, Logits: logits}
		for i := range logits {
			out.Positions = append(out.Positions, first+i)
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(out)
	}
	return cmd
}
