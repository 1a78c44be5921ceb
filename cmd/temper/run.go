package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

func runCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Submit, list, show and steer runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(submitCommand(p), followCommand(p), listCommand(p), showCommand(p), statusCommand(p), compareCommand(p))
	cmd.AddCommand(forkCommand(p), runDuCommand(p), runVerifyCommand(p), runRolloutsCommand(p))
	cmd.AddCommand(steerCommands(p)...)
	cmd.AddCommand(runCheckpointsCommand(p), runPinCommand(p), runUnpinCommand(p), runExportCommand(p), runRepairCommand(p))
	return cmd
}

func submitCommand(p *config.Process) *cobra.Command {
	var s submission
	var begin starting
	var dry bool
	cmd := &cobra.Command{
		Use: "submit FILE", Short: "Start a run",
		Long: `Starts a run of the configuration FILE, which --config names as well. Every mistake that can be found here is reported
first. With --dry-run that is all: it prints what the run would be, asks no server and leaves nothing behind.`,
		Args: cobra.MaximumNArgs(1),
	}
	s.flags(cmd, "config")
	cmd.Flags().StringVar(&s.from, "from", "", "start from a policy of another run, RUN or RUN@POLICY (default: its newest), with its tokenizer and without SFT")
	begin.flags(cmd)
	cmd.Flags().IntVar(&s.priority, "priority", 0, priorityUsage)
	cmd.Flags().StringVar(&s.placement, "placement", "", placementUsage)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "find every mistake, print what the run would be, and start nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.takeFile(args); err != nil {
			return err
		}
		if err := checkPriority(s.priority); err != nil {
			return err
		}
		if _, err := parsePlacement(s.placement); err != nil {
			return err
		}
		s.seeded = cmd.Flags().Changed("seed")
		if dry {
			return s.rehearse(cmd, p)
		}
		c, store, err := connect(cmd.Context(), p, s.check)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := submit(cmd.Context(), c, &s); err != nil {
			return err
		}
		s.writeNote(cmd.ErrOrStderr())
		return begin.follow(cmd, c, store, p, s.runID, "")
	}
	return cmd
}

const priorityUsage = "among runs that wait for the same workers: 1 (first) to 5 (last); 0 is the middle"

func checkPriority(n int) error {
	if n < 0 || n > 5 {
		return cli.Usagef("--priority: is %d, want 1 (first) to 5 (last)", n)
	}
	return nil
}

func followCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "follow RUN", Short: "Show the progress of a run to its end; the path of summary.json is printed last",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := history.CheckRunID(args[0]); err != nil {
			return cli.Usage(err)
		}
		c, store, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		return attend(cmd.Context(), c, store, p, args[0], cmd.OutOrStdout())
	}
	return cmd
}

// attend shows a run from where it is to its closing tables.
func attend(ctx context.Context, c client.Client, store blob.Store, p *config.Process, runID string, out io.Writer) error {
	if err := follow(ctx, c, store, runID, out); err != nil {
		return err
	}
	id, err := workflows.FindRun(ctx, c, runID)
	if err != nil {
		id = workflows.RunWorkflowID(runID) // the server has forgotten it since
	}
	return finish(ctx, store, webUI(p, id), runID, out)
}

// finish prints the closing tables, the path of the summary last. page is the
// run's in the web UI, if any.
func finish(ctx context.Context, store blob.Store, page, runID string, out io.Writer) error {
	r, err := openRun(ctx, store, runID)
	if err != nil {
		return err
	}
	s, ok, err := r.Summary(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("run %s has no summary at %s", runID, r.SummaryPath())
	}
	if err != nil {
		return err
	}
	return printSummary(out, r, s, page)
}

func printSummary(out io.Writer, r *history.Run, s run.Summary, page string) error {
	fmt.Fprintln(out)
	if err := export.Summary(out, s, export.Links{RunDir: r.Dir(), SummaryPath: r.SummaryPath(), WebUI: page}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, r.SummaryPath())
	return err
}

func showCommand(p *config.Process) *cobra.Command {
	var asJSON bool
	step := 0
	cmd := &cobra.Command{Use: "show RUN", Short: "Show a run: its steps and its tables", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the step records as JSON lines")
	cmd.Flags().IntVar(&step, "step", 0, "show where the time of this step went instead: who was waited for, and what was busy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := findRun(cmd.Context(), p, args[0])
		if err != nil {
			return err
		}
		records, err := r.Records(cmd.Context())
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("step") {
			return showStep(cmd.OutOrStdout(), args[0], records, step, asJSON)
		}
		if asJSON {
			return printLines(cmd.OutOrStdout(), records)
		}
		for i, record := range records {
			fmt.Fprintln(cmd.OutOrStdout(), export.StepLine(record, export.ETA(records[:i+1])))
		}
		s, ok, err := r.Summary(cmd.Context())
		if err == nil && ok {
			err = printSummary(cmd.OutOrStdout(), r, s, webUI(p, workflows.RunWorkflowID(args[0])))
		}
		if err != nil || ok {
			return err
		}
		return printState(cmd.Context(), cmd.OutOrStdout(), r)
	}
	return cmd
}

// showStep shows where the time of one step went, or its record.
func showStep(out io.Writer, runID string, records []run.StepRecord, step int, asJSON bool) error {
	at := slices.IndexFunc(records, func(r run.StepRecord) bool { return r.Step == step })
	if at < 0 {
		return cli.Usagef("--step %d: run %s has the records of %d steps", step, runID, len(records))
	}
	if asJSON {
		return printLines(out, records[at:at+1])
	}
	return export.StepTime(out, records[at])
}

// printLines prints each value as a line of JSON.
func printLines[T any](out io.Writer, values []T) error {
	enc := json.NewEncoder(out)
	for _, v := range values {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// printState says how a run without a summary stands, when the store knows.
func printState(ctx context.Context, out io.Writer, r *history.Run) error {
	e, err := r.Entry(ctx)
	if err == nil && e.Reason != "" {
		_, err = fmt.Fprintf(out, "run %s %s: %s\n", r.ID(), e.State, e.Reason)
	}
	return err
}

// findRun opens the store of the process and finds a run in it.
func findRun(ctx context.Context, p *config.Process, id string) (*history.Run, error) {
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, err
	}
	return openRun(ctx, store, id)
}

// openRun finds a run in a store.
func openRun(ctx context.Context, store blob.Store, id string) (*history.Run, error) {
	r, err := history.Open(ctx, store, id)
	return r, usersError(err)
}

// unknownRun turns the server's answers into what a person can act on.
func unknownRun(err error, runID string) error {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &missing):
		return cli.Usagef("run %q is not running on this Temporal server (temper run list shows what the store has)", runID)
	case fault.Of(err) == fault.Refused:
		return cli.Usage(err)
	case errors.As(err, &refused):
		return cli.Usagef("run %s: %w", runID, workflows.Failure(err))
	case fault.Of(err) == fault.Refused:
		return cli.Usage(err)
	case strings.Contains(err.Error(), "already completed"): // an update of a closed workflow
		return cli.Usagef("run %s has ended already", runID)
	default:
		return workflows.Failure(err)
	}
}

// webUI is the link to a workflow's page, "" without a web UI.
func webUI(p *config.Process, workflowID string) string {
	if p.UIAddress == "" {
		return ""
	}
	id := strings.ReplaceAll(workflowID, "/", "%2F")
	return fmt.Sprintf("http://%s/namespaces/%s/workflows/%s", p.UIAddress, p.Namespace, id)
}
