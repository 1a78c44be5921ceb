package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/internal/service/runclient"
	"temper/workers"
	"temper/workflows"
)

func runCommand(p *config.Process) *cobra.Command {
	cmd := group("run", "Submit, list, show and steer runs",
		submitCommand(p), followCommand(p), listCommand(p), showCommand(p), statusCommand(p), compareCommand(p), forkCommand(p), runVerifyCommand(p), runCheckpointsCommand(p), runExportCommand(p))
	cmd.AddCommand(steerCommands(p)...)
	return cmd
}

// submissionFlags add the flags of a new run.
func submissionFlags(cmd *cobra.Command, s *runclient.Submission) {
	f := cmd.Flags()
	f.StringVar(&s.RunID, "run-id", "", "id of the run; default is the configuration's name and the time")
	f.Uint64Var(&s.Seed, "seed", 0, "seed, over the configuration's")
	f.StringArrayVar(&s.Set, "set", nil, "key=value over the configuration, for example rl.roc.enabled=false; repeatable; relative paths in it count from the working folder")
}

// placementFlags add where and when a run gets its workers.
func placementFlags(cmd *cobra.Command, priority *int, placement *string) {
	cmd.Flags().IntVar(priority, "priority", 0, "among runs that wait for the same workers: 1 (first) to 5 (last); 0 is the middle")
	cmd.Flags().StringVar(placement, "placement", "", `workers of its own on a cluster: JSON such as {"trainer": {"count": 1, "devices": {"amd/gpu": 8}}}, or a file with it`)
}

func submitCommand(p *config.Process) *cobra.Command {
	var s runclient.Submission
	var begin starting
	var dry bool
	cmd := &cobra.Command{
		Use: "submit FILE", Short: "Start a run",
		Long: `Starts a run of the configuration FILE (YAML); relative paths in it count from its folder. Every mistake that can be
found here is reported first. With --dry-run that is all: it prints what the run would be, asks no server and leaves
nothing behind.`,
		Args: cobra.ExactArgs(1),
	}
	submissionFlags(cmd, &s)
	cmd.Flags().StringVar(&s.From, "from", "", "start from a policy of another run, RUN or RUN@POLICY (default: its newest), with its tokenizer and without SFT")
	begin.flags(cmd)
	placementFlags(cmd, &s.Priority, &s.Placement)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "find every mistake, print what the run would be, and start nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.File, s.Seeded = args[0], cmd.Flags().Changed("seed")
		if dry {
			return printDryRun(cmd, p, &s)
		}
		c, store, err := runclient.Connect(cmd.Context(), p, s.Check)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := runclient.Submit(cmd.Context(), c, &s); err != nil {
			return err
		}
		s.WriteNote(cmd.ErrOrStderr())
		return begin.follow(cmd, c, store, p, s.RunID, "")
	}
	return cmd
}

// printDryRun prints the run that would start. It opens the store only if the run reads
// from it.
func printDryRun(cmd *cobra.Command, p *config.Process, s *runclient.Submission) error {
	ctx := cmd.Context()
	s.Local = true // what cannot be read cannot be checked
	var store blob.Store = memblob.New()
	if s.RunID != "" || s.ReadsStore() {
		var err error
		if store, err = workers.OpenStore(ctx, p); err != nil {
			return err
		}
	}
	if err := s.Check(ctx, store); err != nil {
		return err
	}
	cfg, found := s.Checked()
	return export.Checked(cmd.OutOrStdout(), s.File, cfg, found)
}

// starting tells what a command does once the server has a run.
type starting struct {
	wait, noWait, asJSON bool
}

func (s *starting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.wait, "wait", false, "follow the run to its end; the path of summary.json is printed last")
	f.BoolVar(&s.noWait, "no-wait", false, "return when the server has the run, before it has accepted its configuration")
	f.BoolVar(&s.asJSON, "json", false, "print the run as JSON")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
	cmd.MarkFlagsMutuallyExclusive("wait", "json")
}

// follow waits until a run has begun, prints it, and with --wait follows it to its end.
// note tells how the run begins, "" for nothing in particular.
func (s *starting) follow(cmd *cobra.Command, c client.Client, store blob.Store, p *config.Process, runID, note string) error {
	out := cmd.OutOrStdout()
	id := workflows.RunWorkflowID(runID)
	about := struct {
		RunID      string `json:"run_id"`
		WorkflowID string `json:"workflow_id"`
		Page       string `json:"page,omitempty"`
		Opened     bool   `json:"opened"` // the run has accepted its configuration
		NumSteps   int    `json:"num_steps,omitempty"`
		Fork       string `json:"fork,omitempty"`
	}{RunID: runID, WorkflowID: id, Page: runclient.Page(p, id), Fork: note}
	if !s.noWait {
		status, err := runclient.AwaitStart(cmd.Context(), c, runID, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		about.Opened, about.NumSteps = status.Opened, status.NumSteps
	}
	if s.asJSON {
		return cli.PrintJSON(out, about)
	}
	if note != "" {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintf(out, "run %s started\n", runID)
	if s.wait {
		return runclient.Attend(cmd.Context(), c, store, p, runID, out)
	}
	_, err := fmt.Fprintln(out, about.Page)
	return err
}

func forkCommand(p *config.Process) *cobra.Command {
	var f runclient.Fork
	var starts starting
	cmd := &cobra.Command{
		Use: "fork RUN --step STEP", Short: "Start a run from a checkpoint of another, with changed configuration",
		Long: `Starts a run from a checkpoint of another, with changed configuration. The new run continues after the step of the
checkpoint, with the weights, the optimizer, the tokenizer and the problems of the other one. Everything may change but
the model, its tokenizer, the supervised stage and the stages that have begun. Without a change it makes the same
steps, bit for bit.`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Step, "step", "", "checkpoint to fork: the number of its step, sft, best (highest reward of the step after it) or last")
	flags.StringVar(&f.File, "config", "", "another configuration (YAML) instead of the run's own")
	flags.StringVar(&f.RunID, "run-id", "", "id of the new run; default is the other's, the step and the time")
	flags.StringArrayVar(&f.Set, "set", nil, "key=value over the configuration; repeatable")
	placementFlags(cmd, &f.Priority, &f.Placement)
	amendmentsFlag(cmd, &f.WithoutAmendments)
	starts.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.Parent = args[0]
		in, err := f.Input()
		if err != nil {
			return err
		}
		var begin setup.Forked
		c, store, err := runclient.Connect(cmd.Context(), p, func(ctx context.Context, store blob.Store) (err error) {
			begin, err = f.Resolve(ctx, store, &in)
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := runclient.Start(cmd.Context(), c, in); err != nil {
			return err
		}
		return starts.follow(cmd, c, store, p, in.RunID, f.Describe(begin))
	}
	return cmd
}

func amendmentsFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "without-amendments", false, "take the configuration with which the run was opened, without what run amend and run repeat-stage changed")
}

func followCommand(p *config.Process) *cobra.Command {
	var draw bool
	cmd := &cobra.Command{
		Use: "follow RUN", Short: "Show the progress of a run to its end", Args: cobra.ExactArgs(1),
		Long: `Prints a line for each thing that happens, failures that are retried included, until the run ends, and the path of
summary.json last. With --screen it draws state, curves and events anew in 80 columns and 24 lines, or as COLUMNS and
LINES say, and reads the store alone; an output that is no terminal gets lines.`,
	}
	cmd.Flags().BoolVar(&draw, "screen", false, "draw the run on the terminal, from the store alone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		if draw {
			r, err := runclient.Find(ctx, p, args[0])
			if err != nil {
				return err
			}
			return runclient.Watch(ctx, r, out)
		}
		if err := history.CheckRunID(args[0]); err != nil {
			return cli.Usage(err)
		}
		c, store, err := runclient.Connect(ctx, p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		return runclient.Attend(ctx, c, store, p, args[0], out)
	}
	return cmd
}

func listCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the runs of the store, and of the server if there is one", Args: cobra.NoArgs,
		Long: `Lists the runs of the store, and of the server if there is one. A run that has not ended has the state that the server
knows, and is lost if the server does not have it. Without a server its state is the last one in the store, with the
reason of a pause, a stop or a failure.`,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := workers.OpenStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		rows, note, err := runclient.List(cmd.Context(), p, store)
		if err != nil {
			return err
		}
		if note != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "states are from the store alone: %v\n", note)
		}
		return show(cmd, *asJSON, rows, runclient.WriteList)
	}
	return cmd
}

func statusCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{Use: "status RUN", Short: "Ask a run for its status", Args: cobra.ExactArgs(1)}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := runclient.Status(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		return show(cmd, *asJSON, status, runclient.WriteStatus)
	}
	return cmd
}

func showCommand(p *config.Process) *cobra.Command {
	var usage bool
	step := 0
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show what a run has left in the store: its steps and its tables", Args: cobra.ExactArgs(1),
		Long: `Shows the steps and the tables of a run; --json prints the records of the steps, one a line. With --step it shows where
the time of that step went: what waited, and what was busy. With --usage it adds up the bytes of the run by kind.`,
	}
	cmd.Flags().IntVar(&step, "step", 0, "where the time of this step went")
	cmd.Flags().BoolVar(&usage, "usage", false, "the bytes of the run in the store by kind")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := onlyOne(cmd, "step", "usage"); err != nil {
			return err
		}
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		r, err := runclient.Find(ctx, p, args[0])
		if err != nil {
			return err
		}
		if usage {
			u, err := r.Usage(ctx)
			if err != nil {
				return err
			}
			return show(cmd, *asJSON, u, export.Usage)
		}
		records, err := r.Records(ctx)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("step") {
			return showStep(cmd, args[0], records, step, *asJSON)
		}
		if *asJSON {
			return cli.PrintLines(out, records)
		}
		return runclient.WriteRun(ctx, out, p, r, records)
	}
	return cmd
}

// showStep prints the record of a step of a run.
func showStep(cmd *cobra.Command, runID string, records []run.StepRecord, step int, asJSON bool) error {
	one, err := run.RecordOf(records, step)
	if err != nil {
		return cli.Usagef("--step %d: run %s %w", step, runID, err)
	}
	if asJSON {
		return cli.PrintLines(cmd.OutOrStdout(), one)
	}
	return export.StepTime(cmd.OutOrStdout(), one[0])
}

func compareCommand(p *config.Process) *cobra.Command {
	var asCSV bool
	cmd := &cobra.Command{
		Use: "compare RUN...", Short: "Compare finished runs: tool errors in correct trajectories, accuracy, length", Args: cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print the series of all runs as CSV")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := onlyOne(cmd, "csv", "json"); err != nil {
			return err
		}
		store, err := workers.OpenStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		compared, err := runclient.Compare(cmd.Context(), store, args)
		if err != nil {
			return err
		}
		print := export.Compare
		if asCSV {
			print = export.CSV
		}
		return show(cmd, *asJSON, compared, print)
	}
	return cmd
}
