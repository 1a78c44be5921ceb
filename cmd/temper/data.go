package main

import (
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
)

func dataCommand() *cobra.Command {
	return group("data", "Make, import, check and mix problem sets and training dialogues",
		generateCommand(), importCommand(), dataCheckCommand(), dataShowCommand(), mixCommand(), decontaminateCommand())
}

func generateCommand() *cobra.Command {
	src := config.Source{}
	var seed uint64
	var dialogues, heldOut bool
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write problems or dialogues of an environment as JSON lines to stdout",
		Long: `Writes problems or dialogues of an environment as JSON lines to stdout. A run reads such
files with stages[i].data.path and sft.data.path.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&src.Env, "env", "chase", "environment: "+strings.Join(env.Names(), ", "))
	f.IntSliceVar(&src.Levels, "levels", []int{1}, "levels, in equal shares")
	f.IntVar(&src.Num, "num", 10, "number of lines")
	f.Uint64Var(&seed, "seed", 1, "seed")
	f.BoolVar(&dialogues, "dialogues", false, "training dialogues instead of problems")
	f.BoolVar(&heldOut, "heldout", false, "held-out problems instead of training problems")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if dialogues {
			ds, err := dataset.Dialogues(src, seed)
			if err != nil {
				return cli.Usage(err)
			}
			return dataset.Write(cmd.OutOrStdout(), ds)
		}
		split := env.Train
		if heldOut {
			split = env.HeldOut
		}
		ps, err := dataset.Problems(src, seed, split)
		if err != nil {
			return cli.Usage(err)
		}
		return dataset.Write(cmd.OutOrStdout(), ps)
	}
	return cmd
}
