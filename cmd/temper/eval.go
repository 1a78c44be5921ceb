package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/evaluate"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/service/runclient"
	"temper/workflows"
)

func evalCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eval [RUN]",
		Short: "Evaluate a policy of a run, or any model on problems of your own",
		Long: `With RUN, evaluates a policy of that run on the held-out problems of every stage and on the sets of
eval.sets. The result is stored under the step that published the policy; that of the last policy of a run that has ended is its final one.

With --model or --url, evaluates any model on files of problems (--set NAME=FILE): a directory in Hugging Face
layout, a run at any step, or a server of OpenAI's API, whose key is ` + ChatKeyKey + `. The folder of --out gets each
sample as it ends, report.md and report.json. The same command goes on where it was killed, and makes no sample twice.
These names bring the settings of the benchmark: ` + strings.Join(evaluate.SuiteNames(), ", ") + `.`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	model := newModelEval(cmd, p)
	cli.PythonFlag(cmd.Flags(), p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if model.isAsked() {
			if len(args) > 0 {
				return cli.Usagef("RUN goes without --model and --url: name the run with --model")
			}
			return model.run(cmd, asJSON)
		}
		if len(args) == 0 {
			return cli.Usagef("RUN, --model or --url is missing: what is to be evaluated")
		}
		if flag := model.flagWithoutModel(cmd); flag != "" {
			return cli.Usagef("--%s goes with --model or --url", flag)
		}
		ctx := cmd.Context()
		in, err := evalInput(ctx, p, args[0], model.chat.source.Version)
		if err != nil {
			return err
		}
		c, _, err := runclient.Connect(ctx, p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		run, err := workflows.Evaluate(ctx, c, in)
		if err != nil {
			return err
		}
		var out workflows.EvaluateRunResult
		if err := workflows.AwaitEnd(ctx, c, run.GetID(), &out); err != nil {
			return runclient.Failure(err, args[0])
		}
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), out)
		}
		return printEvaluations(cmd.OutOrStdout(), out)
	}
	return cmd
}

// printEvaluations prints the table of a run's evaluations.
func printEvaluations(w io.Writer, out workflows.EvaluateRunResult) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\tpolicy\taccuracy\tsampled\ttool errors\ttokens\tturns\tproblems\t")
	for _, e := range out.Stages {
		fmt.Fprintf(t, "%d\t%d\t%.2f\t%.2f\t%.1f%%\t%.1f\t%.1f\t%d\t\n", e.Stage, e.PolicyVersion,
			e.Accuracy, e.SampledAccuracy, 100*e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.NumProblems)
	}
	for _, e := range out.Sets {
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.1f%%\t%.1f\t%.1f\t%d\t\n", e.Set, e.PolicyVersion,
			e.Accuracy, e.SampledAccuracy, 100*e.ToolErrorRate, e.MeanTokens, e.MeanTurns, e.NumProblems)
	}
	return t.Flush()
}

// evalInput returns the policy to evaluate: the requested version, which must exist, or the
// newest.
func evalInput(ctx context.Context, p *config.Process, runID string, version *int64) (workflows.EvaluateRunInput, error) {
	in := workflows.EvaluateRunInput{RunID: runID, Version: version}
	r, err := runclient.Find(ctx, p, runID)
	if err != nil {
		return in, err
	}
	if version != nil {
		err = run.HasPolicy(ctx, r.Store(), runID, *version)
	} else {
		var newest int64
		newest, err = history.NewestPolicy(ctx, r.Store(), runID)
		in.Version = &newest
	}
	if err != nil {
		return in, err
	}
	summary, ended, err := r.Summary(ctx)
	in.Final = ended && summary.PolicyVersion == *in.Version
	return in, err
}
