package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

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
		index, err := readBenchmarks(against, words)
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
		tell := func() error { return describeDecontaminated(cmd.OutOrStdout(), report, index.Len()) }
		if asJSON {
			tell = func() error { return cli.PrintJSON(cmd.OutOrStdout(), report) }
		}
		return errors.Join(tell(), dataError(cmd, err))
	}
	return cmd
}

func describeDecontaminated(w io.Writer, r *importer.Decontaminated, problems int) error {
	fmt.Fprintf(w, "%d rows read = %d kept + %d whose prompt is in a benchmark + %d that share words with one\n", r.Read, r.Kept, r.Same, r.Overlapping)
	fmt.Fprintf(w, "%d of %d benchmark problems are met\n", len(r.Problems), problems)
	for _, name := range slices.Sorted(maps.Keys(r.Benchmarks)) {
		fmt.Fprintf(w, "  %s: %d rows\n", name, r.Benchmarks[name])
	}
	const most = 20
	for _, h := range r.Dropped[:min(most, len(r.Dropped))] {
		if h.Words == "" {
			fmt.Fprintf(w, "dropped %s:%d: is %s\n", h.File, h.Row, h.Benchmark)
			continue
		}
		fmt.Fprintf(w, "dropped %s:%d: shares %q with %s\n", h.File, h.Row, h.Words, h.Benchmark)
	}
	if n := r.Same + r.Overlapping - most; n > 0 {
		fmt.Fprintf(w, "%d more\n", n)
	}
	return nil
}

func mixCommand() *cobra.Command {
	var m mixFlags
	cmd := &cobra.Command{
		Use:   "mix FILE[=SHARE]... --out OUT.jsonl",
		Short: "Mix sets of rows by epochs or weights, in an order drawn from the seed",
		Long: `Mixes the lines of files. With --by epochs a share is how often the rows of a file come,
in parts of a pass too (tools.jsonl=2 chat.jsonl=0.5); without one they come once. With
--by weights a share is that of the mix, of --num rows in all or of as many as the files
have; a file that is too short comes again. Two mixes with the same files and seed are equal.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return m.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&m.out, "out", "o", "", "file to write")
	f.StringVar(&m.by, "by", "epochs", "what shares are: epochs or weights")
	f.IntVar(&m.num, "num", 0, "rows of a mix by weights; default is as many as the files have")
	f.Uint64Var(&m.seed, "seed", 1, "seed of the order")
	return cmd
}

// What a share of a mix is.
var (
	errNoWeight = errors.New("want FILE=SHARE with a number from 0")
	errNoEpochs = errors.New("want FILE=SHARE with a number above 0")
)
