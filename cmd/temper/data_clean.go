package main

import (
	"errors"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/dataset"
	"temper/internal/dataset/importer"
)

func decontaminateCommand() *cobra.Command {
	var out string
	var against []string
	var words int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "decontaminate FILE... --against BENCHMARK --out OUT.jsonl",
		Short: "Drop rows that share words with a benchmark",
		Long: `Writes the rows that share no 8 words in a row with a problem of the benchmarks, and whose
prompt is none of theirs. Rows stay as they are. Words are runs of letters and digits in
lower case; signs between them do not count. Files and benchmarks may have any layout that
temper data import knows.`,
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVarP(&out, "out", "o", "", "file to write")
	f.StringArrayVar(&against, "against", nil, "file or folder of a benchmark; repeatable")
	f.IntVar(&words, "words", dataset.GramWords, "words in a row that count as an overlap")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" || len(against) == 0 {
			return cli.Usagef("--out and --against are needed: the file to write, and the benchmark")
		}
		index, err := importer.ReadBenchmarks(against, words)
		if err != nil {
			return cli.Usage(err)
		}
		files, err := importer.Files(args)
		if err != nil {
			return cli.Usage(err)
		}
		benchmarks, err := importer.Files(against)
		if err != nil {
			return cli.Usage(err)
		}
		report, err := importer.Decontaminate(cmd.Context(), files, benchmarks, out, index)
		if err != nil && !errors.Is(err, importer.ErrNothingLeft) {
			return dataError(cmd, err)
		}
		tell := func() error { return report.Print(cmd.OutOrStdout(), index.Len()) }
		if asJSON {
			tell = func() error { return cli.PrintJSON(cmd.OutOrStdout(), report) }
		}
		return errors.Join(tell(), dataError(cmd, err))
	}
	return cmd
}

func mixCommand() *cobra.Command {
	var m importer.Mix
	cmd := &cobra.Command{
		Use:   "mix FILE[=SHARE]... --out OUT.jsonl",
		Short: "Mix sets of rows by epochs or weights, in an order drawn from the seed",
		Long: `Mixes the lines of files. With --by epochs a share is how often the rows of a file come,
in parts of a pass too (tools.jsonl=2 chat.jsonl=0.5); without one they come once. With
--by weights a share is that of the mix, of --num rows in all or of as many as the files
have; a file that is too short comes again. Two mixes with the same files and seed are equal.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return m.Write(cmd.Context(), cmd.OutOrStdout(), args) },
	}
	f := cmd.Flags()
	f.StringVarP(&m.Out, "out", "o", "", "file to write")
	f.StringVar(&m.By, "by", importer.ByEpochs, "what shares are: epochs or weights")
	f.IntVar(&m.Num, "num", 0, "rows of a mix by weights; default is as many as the files have")
	f.Uint64Var(&m.Seed, "seed", 1, "seed of the order")
	return cmd
}
