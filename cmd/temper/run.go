package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/report"
	"temper/workflows"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Submit, list, show and steer runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(submitCommand(), listCommand(), showCommand(), statusCommand(), compareCommand())
	for _, c := range []struct{ name, short string }{
		{workflows.CommandPause, "Hold a run at the next safe point"},
		{workflows.CommandResume, "Let a paused run go on"},
		{workflows.CommandStop, "End a run at the next safe point"},
	} {
		cmd.AddCommand(steerCommand(c.name, c.short))
	}
	return cmd
}

// submission is what a person asks for.
type submission struct {
	config string
	runID  string
	seed   uint64
	seeded bool
	set    []string
}

func (s *submission) flags(cmd *cobra.Command, configFlag string) {
	f := cmd.Flags()
	f.StringVar(&s.config, configFlag, "", "run configuration (YAML)")
	f.StringVar(&s.runID, "run-id", "", "id of the run; default is the configuration's name and the time")
	f.Uint64Var(&s.seed, "seed", 0, "seed, over the configuration's")
	f.StringArrayVar(&s.set, "set", nil, "key=value over the configuration, for example rl.roc.enabled=false; repeatable")
}

// load validates the configuration here, so that mistakes are reported before
// anything is started.
func (s *submission) load() (config.Run, error) {
	set := map[string]string{}
	for _, kv := range s.set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return config.Run{}, usagef("--set %s: want key=value", kv)
		}
		set[key] = value
	}
	if s.seeded {
		set["seed"] = fmt.Sprint(s.seed)
	}
	run, err := config.LoadFile(s.config, set)
	if err != nil {
		return run, usageError{err}
	}
	if s.runID == "" {
		s.runID = run.Name + "-" + time.Now().UTC().Format("20060102-150405")
	}
	if err := artifact.CheckRunID(s.runID); err != nil {
		return run, usageError{err}
	}
	return run, nil
}

func submitCommand() *cobra.Command {
	var s submission
	var wait bool
	cmd := &cobra.Command{
		Use: "submit --config FILE", Short: "Start a run", Args: cobra.NoArgs,
	}
	p := processFlags(cmd)
	s.flags(cmd, "config")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the run to its end; the path of summary.json is printed last")
	_ = cmd.MarkFlagRequired("config")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.seeded = cmd.Flags().Changed("seed")
		c, store, err := connect(cmd.Context(), p, func() error { _, err := s.load(); return err })
		if err != nil {
			return err
		}
		defer c.Close()
		if err := submit(cmd.Context(), c, store, &s); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "run %s started\n", s.runID)
		if !wait {
			fmt.Fprintln(out, webUI(p, s.runID))
			return nil
		}
		if err := follow(cmd.Context(), c, store, s.runID, out); err != nil {
			return err
		}
		return finish(cmd.Context(), store, p, s.runID, out)
	}
	return cmd
}

// submit starts the workflow exactly as a plain Temporal client would.
func submit(ctx context.Context, c client.Client, store blob.Store, s *submission) error {
	run, err := s.load()
	if err != nil {
		return err
	}
	if _, err := store.Stat(ctx, artifact.Layout{RunID: s.runID}.Plan()); err == nil {
		return usagef("run id %q exists already at %s: choose another", s.runID, store.Locate(artifact.Layout{RunID: s.runID}.Dir()))
	}
	text, err := run.YAML()
	if err != nil {
		return err
	}
	inline, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	_, err = workflows.Start(ctx, c, activities.RunInput{RunID: s.runID, Config: inline})
	return err
}

// finish prints the closing tables, the path of the summary last.
func finish(ctx context.Context, store blob.Store, p *config.Process, runID string, out io.Writer) error {
	layout := artifact.Layout{RunID: runID}
	var s artifact.Summary
	if err := blob.ReadJSON(ctx, store, layout.Summary(), &s); err != nil {
		return fmt.Errorf("run %s: %w", runID, err)
	}
	fmt.Fprintln(out)
	path := store.Locate(layout.Summary())
	if err := report.Summary(out, s, report.Links{RunDir: store.Locate(layout.Dir()), SummaryPath: path, WebUI: webUI(p, runID)}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, path)
	return err
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the runs of the store", Args: cobra.NoArgs}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openStore(p)
		if err != nil {
			return err
		}
		ids, err := artifact.RunIDs(cmd.Context(), store)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "RUN\tSTATE\tSTEPS\tSEED\tACCURACY BY STAGE")
		for _, id := range ids {
			if err := listLine(cmd.Context(), t, store, id); err != nil {
				return err
			}
		}
		return t.Flush()
	}
	return cmd
}

func listLine(ctx context.Context, w io.Writer, store blob.Store, id string) error {
	layout := artifact.Layout{RunID: id}
	plan, _, err := artifact.Lookup[activities.RunPlan](ctx, store, layout.Plan())
	if err != nil {
		return err
	}
	s, done, err := artifact.Lookup[artifact.Summary](ctx, store, layout.Summary())
	if err != nil {
		return err
	}
	state, steps, accuracy := "open", "", ""
	if done {
		state, steps = "done", fmt.Sprint(s.Steps)
		for _, st := range s.Stages {
			accuracy += fmt.Sprintf("%s %.2f -> %.2f  ", st.Name, st.AccuracyBefore, st.AccuracyAfter)
		}
	} else if records, err := artifact.StepRecords(ctx, store, layout); err == nil {
		steps = fmt.Sprintf("%d/%d", len(records), plan.NumSteps())
	}
	_, err = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", id, state, steps, plan.Seed, accuracy)
	return err
}

func showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "show RUN", Short: "Show a run: its steps and its tables", Args: cobra.ExactArgs(1)}
	p := processFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the step records as JSON lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := openStore(p)
		if err != nil {
			return err
		}
		layout, err := existingRun(cmd.Context(), store, args[0])
		if err != nil {
			return err
		}
		records, err := artifact.StepRecords(cmd.Context(), store, layout)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		for i, r := range records {
			if asJSON {
				if err := json.NewEncoder(out).Encode(r); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintln(out, report.StepLine(r, report.ETA(records[:i+1])))
		}
		if _, err := store.Stat(cmd.Context(), layout.Summary()); err != nil || asJSON {
			return nil //nolint:nilerr // a run without a summary is still open
		}
		return finish(cmd.Context(), store, p, args[0], out)
	}
	return cmd
}

// existingRun checks that a run id names a run in the store.
func existingRun(ctx context.Context, store blob.Store, id string) (artifact.Layout, error) {
	layout := artifact.Layout{RunID: id}
	if err := artifact.CheckRunID(id); err != nil {
		return layout, usageError{err}
	}
	if _, err := store.Stat(ctx, layout.Config()); err != nil {
		return layout, usagef("no run %q in %s (temper run list shows what is there)", id, store.Locate(artifact.Root))
	}
	return layout, nil
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status RUN", Short: "Ask a run for its status", Args: cobra.ExactArgs(1)}
	p := processFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		status, err := workflows.Status(cmd.Context(), c, args[0])
		if err != nil {
			return unknownRun(err, args[0])
		}
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(status)
	}
	return cmd
}

func steerCommand(name, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: name + " RUN", Short: short, Args: cobra.ExactArgs(1)}
	p := processFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "shown in the status and the event log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		answer, err := workflows.Send(cmd.Context(), c, args[0], name, reason)
		if err != nil {
			return unknownRun(err, args[0])
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s: %s\n", args[0], answer)
		return err
	}
	return cmd
}

// unknownRun turns the server's answers into what a person can act on.
func unknownRun(err error, runID string) error {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &missing):
		return usagef("run %q is not running on this Temporal server (temper run list shows what the store has)", runID)
	case errors.As(err, &refused):
		return usagef("run %s: %s", runID, refused.Message())
	default:
		return err
	}
}

// webUI is the link to a run's page, "" without a web UI.
func webUI(p *config.Process, runID string) string {
	if p.UIAddress == "" {
		return ""
	}
	id := strings.ReplaceAll(workflows.RunWorkflowID(runID), "/", "%2F")
	return fmt.Sprintf("http://%s/namespaces/%s/workflows/%s", p.UIAddress, p.Namespace, id)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
