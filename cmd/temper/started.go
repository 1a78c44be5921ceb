package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/workflows"
)

// startPatience is how long a command waits for a run to accept its configuration.
const startPatience = 30 * time.Second

// starting says what a command does once the server has a run.
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

// startedRun is a run that a command has started, for programs.
type startedRun struct {
	RunID      string `json:"run_id"`
	WorkflowID string `json:"workflow_id"`
	Page       string `json:"page,omitempty"`
	// Opened says that the run has accepted its configuration.
	Opened   bool   `json:"opened"`
	NumSteps int    `json:"num_steps,omitempty"`
	Fork     string `json:"fork,omitempty"`
}

// follow waits until a run has begun and says so, and with --wait shows it to its
// end. note says what the run begins with, "" for nothing in particular.
func (s *starting) follow(cmd *cobra.Command, c client.Client, store blob.Store, p *config.Process, runID, note string) error {
	out := cmd.OutOrStdout()
	id := workflows.RunWorkflowID(runID)
	about := startedRun{RunID: runID, WorkflowID: id, Page: webUI(p, id), Fork: note}
	if !s.noWait {
		status, err := awaitStart(cmd.Context(), c, runID, cmd.ErrOrStderr())
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
		return attend(cmd.Context(), c, store, p, runID, out)
	}
	_, err := fmt.Fprintln(out, about.Page)
	return err
}

// awaitStart waits until a run has accepted its configuration. A run that nobody has
// taken yet is no error.
func awaitStart(ctx context.Context, c client.Client, runID string, notes io.Writer) (workflows.RunStatus, error) {
	status, err := workflows.AwaitStart(ctx, c, runID, startPatience)
	switch {
	case errors.Is(err, workflows.ErrWaiting):
		fmt.Fprintf(notes, "run %s waits: no control worker has opened it within %s; temper run status %s shows when one does\n", runID, startPatience, runID)
		return status, nil
	case ctx.Err() != nil:
		return status, fmt.Errorf("%w: run %s is started; temper run status %s shows it", cli.ErrInterrupted, runID, runID)
	case err != nil:
		return status, fmt.Errorf("run %s: %w", runID, err)
	}
	return status, nil
}
