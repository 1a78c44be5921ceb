package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run/record"
)

func runRolloutsCommand(p *config.Process) *cobra.Command {
	var step int
	var problem string
	cmd := &cobra.Command{
		Use: "rollouts RUN --step N", Short: "Print the trajectories of a step as JSON, one a line, in whichever form they are stored",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&step, "step", 0, "the step")
	cmd.Flags().StringVar(&problem, "problem", "", "only those of this problem")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if step < 1 {
			return cli.Usagef("--step is %d: want a step of the run, from 1", step)
		}
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		return printRollouts(cmd, r, step, problem)
	}
	return cmd
}

func printRollouts(cmd *cobra.Command, r *history.Run, step int, problem string) error {
	problems, err := r.Problems(cmd.Context(), step)
	if err != nil {
		return err
	}
	switch {
	case len(problems) == 0:
		return cli.Usagef("run %s has no trajectories of step %d: it was not sampled, or checkpoint.keep_trajectories has deleted them", r.ID(), step)
	case problem != "" && !slices.Contains(problems, problem):
		return cli.Usagef("step %d of run %s has no problem %q", step, r.ID(), problem)
	case problem != "":
		problems = []string{problem}
	}
	for _, id := range problems {
		trajectories, err := r.Group(cmd.Context(), step, id)
		if err != nil {
			return err
		}
		lines, err := record.Lines(trajectories)
		if err != nil {
			return fmt.Errorf("problem %s: %w", id, err)
		}
		if _, err := cmd.OutOrStdout().Write(lines); err != nil {
			return err
		}
	}
	return nil
}
