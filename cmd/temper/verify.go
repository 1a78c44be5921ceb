package main

import (
	"os"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/evaluate"
	"temper/internal/reward"
)

func verifyCommand() *cobra.Command {
	var j evaluate.Judge
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Judge responses by their keys: JSON lines in, JSON lines out",
		Long: "Judge responses by their keys. Each line of FILE, or of standard input, is {\"gold\": KEY, \"response\": TEXT};\n" +
			"each line that is printed is {\"correct\", \"extracted\", \"method\", \"reason\"}, in the same order. A line that cannot\n" +
			"be judged stops it, unless --max-bad allows it; then it is named on standard error, and its method is \"bad\".\n\n" +
			"Modes: paper takes the last \\boxed in the last <answer> block; tag takes that block as it is; integer accepts whole\n" +
			"numbers alone; released takes the last box anywhere, or what follows a phrase such as \"the answer is\", and accepts\n" +
			"numbers that are near enough, as the released grader of rStar2-Agent does.",
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar((*string)(&j.Mode), "mode", string(reward.Paper), "paper, tag, integer or released")
	cmd.Flags().IntVar(&j.MaxBad, "max-bad", 0, "lines that are tolerated which cannot be judged")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := j.Mode.Check(); err != nil {
			return cli.Usagef("--%v", err)
		}
		if j.MaxBad < 0 {
			return cli.Usagef("--max-bad %d, want 0 or more", j.MaxBad)
		}
		in := cmd.InOrStdin()
		j.Name = "standard input"
		if len(args) > 0 {
			f, err := os.Open(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			defer func() { _ = f.Close() }() // only read
			in, j.Name = f, args[0]
		}
		return j.Lines(in, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}
