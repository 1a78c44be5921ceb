package main

import (
	"io"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/trainer/weights/hf"
)

func modelInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Show what a model directory holds, and what is wrong with it",
		Long: `Reads the headers and the small files of DIR, not the weights. What keeps the model from being
loaded is the error, all of it at once; what only keeps it from talking (no tokenizer, no chat
template) is listed as a problem.`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := hf.Load(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		defer m.Close() //nolint:errcheck // read only
		return show(cmd, *asJSON, hf.Inspect(args[0], m), func(out io.Writer, r hf.Report) error { return r.Print(out) })
	}
	return cmd
}
