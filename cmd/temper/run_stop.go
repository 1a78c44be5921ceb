package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// stopNow ends a run and waits for that. Where the run could not write its end, this
// writes it.
func (s *steering) stopNow(cmd *cobra.Command, c client.Client, store blob.Store, runID string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	say := func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "run %s: %s\n", runID, text) }
	stopped, err := workflows.StopNow(ctx, c, runID, s.Command, workflows.Patience{}, say)
	if err != nil {
		return unknownRun(err, runID)
	}
	if stopped.Forced != "" {
		if err := recordForced(ctx, store, runID, s.Command, stopped); err != nil {
			return fmt.Errorf("run %s is terminated, and the store does not say so: %w", runID, err)
		}
	}
	if s.asJSON {
		return json.NewEncoder(out).Encode(map[string]string{"run_id": runID, "command": workflows.CommandStop, "answer": stopped.Answer, "forced": stopped.Forced})
	}
	if stopped.Answer != "" {
		fmt.Fprintf(out, "run %s: %s\n", runID, stopped.Answer)
	}
	if stopped.Forced != "" {
		_, err = fmt.Fprintf(out, "run %s was terminated: %s; it has no summary, and its checkpoints are there (temper run fork)\n", runID, stopped.Forced)
		return err
	}
	_, err = fmt.Fprintf(out, "run %s has ended\n", runID)
	return err
}

// recordForced notes in the store that a run was stopped which could not say so. A run
// that was never opened has nothing there.
func recordForced(ctx context.Context, store blob.Store, runID string, c workflows.Command, stopped workflows.Stopped) error {
	r, err := history.Open(ctx, store, runID)
	if fault.IsUsers(err) || errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text := "the run was terminated"
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if c.By != "" {
		text += " (by " + c.By + ")"
	}
	return run.LogEvent(ctx, store, run.Event{
		Run: run.Ref{RunID: runID, Config: r.Plan.Config}, Time: time.Now(), Kind: run.EventStop,
		Text: text + "; " + stopped.Forced, ID: "stop-now/" + stopped.Execution,
	})
}
