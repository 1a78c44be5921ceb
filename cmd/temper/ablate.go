package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run/ablation"
	"temper/internal/service/runclient"
	"temper/workers"
	"temper/workflows"
)

func ablateCommand(p *config.Process) *cobra.Command {
	return group("ablate", "Compare variants of a recipe over several seeds",
		ablateSubmitCommand(p), ablateStatusCommand(p), ablateReportCommand(p),
		ablateAction(p, workflows.CommandPause, "Begin no further run, and pause those that go on at their next safe point"),
		ablateAction(p, workflows.CommandResume, "Let a paused ablation and its runs go on"),
		ablateAction(p, workflows.CommandStop, "Begin no further run, stop those that go on, and store what there is"))
}

func ablateSubmitCommand(p *config.Process) *cobra.Command {
	var o ablation.Order
	var wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "submit --config FILE --arm NAME[=KEY=VALUE[;KEY=VALUE]] --seeds 1-5",
		Short: "Make the runs of several arms over several seeds, and figure, table and series of them",
		Long: `Makes one run of each arm with each seed, as one workflow, and stores what comes out below
ablations/ID: table.md, figure.png, series.csv and result.json. The first arm is what the others
are compared with. A run that fails is reported and the others go on. Whoever submits the same
again finds the runs that are whole, and goes on with those that are not.

  temper ablate submit --config configs/ablation.yaml --arm roc --arm grpo=rl.roc.enabled=false --seeds 1-5 --wait`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.File, "file", "", "YAML with id, config, set, arms (name, set), seeds and parallel, in place of the flags or below them")
	f.StringVar(&o.Recipe, "config", "", "base recipe (YAML)")
	f.StringArrayVar(&o.Arms, "arm", nil, "an arm: its name alone, or with the keys that it sets, NAME=KEY=VALUE;KEY=VALUE; repeatable")
	f.StringArrayVar(&o.Set, "set", nil, "key=value over the recipe for every arm; repeatable")
	f.StringVar(&o.Seeds, "seeds", "", "seeds with commas, and ranges: 1-5 or 1,2,7")
	f.StringVar(&o.Input.ID, "id", "", "id of the ablation; default is the recipe's name")
	f.IntVar(&o.Input.Parallel, "parallel", 0, "runs that go on at a time (default 1)")
	f.IntVar(&o.Input.Priority, "priority", 0, "of its runs among others that wait for the same workers: 1 (first) to 5 (last); 0 is the middle")
	f.BoolVar(&wait, "wait", false, "wait for the end and print the table")
	f.BoolVar(&asJSON, "json", false, "print the ablation as JSON")
	cmd.MarkFlagsMutuallyExclusive("wait", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, store, err := runclient.Connect(cmd.Context(), p, func(ctx context.Context, store blob.Store) error { return checkAblation(ctx, store, &o) })
		if err != nil {
			return err
		}
		defer c.Close()
		if err := workflows.StartAblation(cmd.Context(), c, o.Input); err != nil {
			if errors.Is(err, workflows.ErrRunning) {
				return cli.Usage(err)
			}
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, map[string]any{"id": o.Input.ID, "workflow_id": workflows.AblateWorkflowID(o.Input.ID), "runs": len(o.Input.Arms) * len(o.Input.Seeds)})
		}
		fmt.Fprintf(out, "ablation %s started: %d arms, %d seeds, %d runs\n", o.Input.ID, len(o.Input.Arms), len(o.Input.Seeds), len(o.Input.Arms)*len(o.Input.Seeds))
		if !wait {
			_, err := fmt.Fprintln(out, runclient.Page(p, workflows.AblateWorkflowID(o.Input.ID)))
			return err
		}
		return awaitAblation(cmd, c, store, o.Input.ID)
	}
	return cmd
}

// awaitAblation waits for the end of an ablation and prints the table. It returns an error
// if a run of the ablation is incomplete.
func awaitAblation(cmd *cobra.Command, c client.Client, store blob.Store, id string) error {
	var end ablation.Outcome
	err := workflows.AwaitEnd(cmd.Context(), c, workflows.AblateWorkflowID(id), &end)
	if cmd.Context().Err() != nil {
		return fmt.Errorf("%w: ablation %s goes on while the service is up; temper ablate status %s shows it", cli.ErrInterrupted, id, id)
	}
	if err != nil {
		return workflows.Failure(err)
	}
	result, err := ablation.Collect(cmd.Context(), store, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n%s\n", result.Markdown(), end.Place)
	if end.Whole < end.Of {
		return fmt.Errorf("ablation %s: %d of %d runs are not whole; submit it again to go on with them", id, end.Of-end.Whole, end.Of)
	}
	return nil
}

func ablateStatusCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "status ID", Short: "Show the runs of an ablation and how each is", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the status as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := runclient.Connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := workflows.StatusOfAblation(cmd.Context(), c, args[0])
		if err != nil {
			return unknownAblation(err, args[0])
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return cli.PrintJSON(out, s)
		}
		fmt.Fprintln(out, s)
		for _, r := range s.Runs {
			line := fmt.Sprintf("  %-40s %s", r.RunID, r.State)
			if r.Reason != "" {
				line += ": " + r.Reason
			}
			fmt.Fprintln(out, line)
		}
		return nil
	}
	return cmd
}

// ablateAction is a command that an ablation obeys.
func ablateAction(p *config.Process, name, short string) *cobra.Command {
	arg := workflows.Command{By: runclient.Operator()}
	cmd := &cobra.Command{Use: name + " ID", Short: short, Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&arg.Reason, "reason", "", "shown in the status and in the event logs of the runs")
	if name != workflows.CommandResume {
		cmd.Flags().BoolVar(&arg.Now, "now", false, "interrupt what is in flight in its runs")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := runclient.Connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err := workflows.CommandAblation(cmd.Context(), c, args[0], name, arg)
		if err != nil {
			return unknownAblation(workflows.Failure(err), args[0])
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ablation %s: %s\n", args[0], answer)
		return err
	}
	return cmd
}

func unknownAblation(err error, id string) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return cli.Usagef("no ablation %q goes on, or ended lately, on this Temporal server; temper ablate report %s reads the store", id, id)
	}
	return err
}

func ablateReportCommand(p *config.Process) *cobra.Command {
	var asCSV, asJSON bool
	var folder string
	cmd := &cobra.Command{
		Use: "report ID", Short: "Print the table of an ablation, of what is whole by now", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print the series with their bands as CSV")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON, the series of each run too")
	cmd.Flags().StringVarP(&folder, "output", "o", "", "write table.md, figure.png, series.csv and result.json into this folder")
	cmd.MarkFlagsMutuallyExclusive("csv", "json", "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := workers.OpenStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		result, err := ablation.Collect(cmd.Context(), store, args[0])
		if fault.Of(err) != "" {
			return cli.Usage(err)
		}
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case asJSON:
			return cli.PrintJSON(out, result)
		case asCSV:
			data, err := result.CSV()
			if err != nil {
				return err
			}
			_, err = out.Write(data)
			return err
		case folder != "":
			return result.WriteFolder(folder)
		default:
			_, err := fmt.Fprint(out, result.Markdown())
			return err
		}
	}
	return cmd
}

// checkAblation completes an order and checks the runs of each arm, with every mistake in one error.
func checkAblation(ctx context.Context, store blob.Store, o *ablation.Order) error {
	plan, configs, err := o.Complete(cli.ParseSet)
	if err != nil {
		return cli.Usage(err)
	}
	var bad []error
	for _, a := range plan.Arms {
		cfg := configs[ablation.RunID(plan.ID, a.Name, plan.Seeds[0])]
		err := runclient.CheckData(cfg)
		if err == nil {
			_, err = runclient.CheckRun(ctx, store, cfg)
		}
		if err != nil {
			bad = append(bad, cli.Usage(fmt.Errorf("arm %s: %w", a.Name, err)))
		}
	}
	return errors.Join(bad...)
}
