package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/run"
	"temper/workflows"
)

func evalCommand() *cobra.Command {
	var version int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eval RUN",
		Short: "Evaluate a policy of a finished run on the held-out problems of every stage",
		Args:  cobra.ExactArgs(1),
	}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().Int64Var(&version, "version", 0, "policy version; default is the last")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		store, layout, err := openRun(ctx, p, args[0])
		if err != nil {
			return err
		}
		in := workflows.EvaluateRunInput{RunID: layout.RunID, Version: &version}
		if version, err = evalVersion(ctx, store, layout, version, cmd.Flags().Changed("version")); err != nil {
			return err
		}
		c, _, err := connect(ctx, p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := workflows.Evaluate(ctx, c, in)
		if err != nil {
			return err
		}
		var out workflows.EvaluateRunResult
		if err := run.Get(ctx, &out); err != nil {
			return runFailure(err, args[0])
		}
		if asJSON {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(out)
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "stage\tpolicy\taccuracy\tsampled\ttool errors\ttokens\tturns\tproblems\t")
		for _, e := range out.Stages {
			fmt.Fprintf(t, "%d\t%d\t%.2f\t%.2f\t%.1f%%\t%.1f\t%.1f\t%d\t\n", e.Stage, e.PolicyVersion,
				e.Accuracy, e.SampledAccuracy, 100*e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.NumProblems)
		}
		return t.Flush()
	}
	return cmd
}

// evalVersion is the policy to evaluate: the one that is asked for, which has to
// be there, or the last.
func evalVersion(ctx context.Context, store blob.Store, layout artifact.Layout, version int64, asked bool) (int64, error) {
	if asked {
		return version, forkError(run.HasPolicy(ctx, store, layout.RunID, version))
	}
	// A run that was stopped early has no policy of its last planned step.
	summary, _, err := artifact.Lookup[artifact.Summary](ctx, store, layout.Summary())
	return summary.PolicyVersion, err
}
