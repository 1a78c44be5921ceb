package main

import (
	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/dataset/importer"
)

func dataShowCommand() *cobra.Command {
	var format formatFlags
	var row, num int
	var spans bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the tokens of a row, and which of them are learned",
		Long: `Prints the tokens of a row of dialogues or problems as a run would make them, one a line:
its place, its id, # if the loss covers it and . if not, and its text. Rows of any layout
that temper data import knows are shown as what they become. Without --model and --config
tokens are bytes of the small ChatML.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.IntVar(&row, "row", 1, "first row to show, from 1")
	f.IntVar(&num, "num", 1, "rows to show")
	f.BoolVar(&spans, "spans", false, "one line for all tokens in a row that are learned, or that are not")
	format.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if row < 1 || num < 1 {
			return cli.Usagef("--row and --num are %d and %d: want numbers from 1", row, num)
		}
		chatFormat, err := format.open(cmd.Context())
		if err != nil {
			return cli.Usage(err)
		}
		return dataError(cmd, importer.Show(cmd.OutOrStdout(), chatFormat, args[0], row, num, spans))
	}
	return cmd
}
