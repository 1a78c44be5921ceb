package runclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/trainer/checkpoint"
	"temper/workflows"
)

// Send sends a command to a run and returns the answer. A resume first takes back the pauses
// of the server in the namespace, of the run and of its stage.
func Send(ctx context.Context, c client.Client, namespace, runID, name string, arg workflows.Command) (string, error) {
	if name != workflows.CommandResume {
		return workflows.Send(ctx, c, runID, name, arg)
	}
	lifted, err := temporalclient.Lift(ctx, c, namespace, runID, arg.By, arg.Reason)
	if err != nil {
		return "", err
	}
	var was []string
	for _, f := range lifted {
		was = append(was, f.String())
	}
	if len(was) > 0 {
		status, err := workflows.Status(ctx, c, runID)
		if err == nil && status.State != workflows.StatePaused && status.State != workflows.StatePausing {
			return "the run goes on: " + strings.Join(was, "; ") + "; unpaused", nil
		}
	}
	answer, err := workflows.Send(ctx, c, runID, name, arg)
	if err == nil && len(was) > 0 {
		answer += ": " + strings.Join(was, "; ") + "; unpaused, and the pause by command is over"
	}
	return answer, err
}

// Successor makes the id of the run that replaces another.
func Successor(runID string) string {
	suffix := "-r" + time.Now().UTC().Format("0102150405")
	return runID[:min(len(runID), 64-len(suffix))] + suffix
}

// operatorKey is the variable with the name of the person for whom a program gives commands.
const operatorKey = "TEMPER_OPERATOR"

// Operator returns the value of TEMPER_OPERATOR, or the user and the machine.
func Operator() string {
	if name := os.Getenv(operatorKey); name != "" {
		return name
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + strings.SplitN(host, ".", 2)[0]
	}
	return name
}

// StopNow ends a run and waits until it has ended. It writes the end of a run that could not
// write it, and reports the steps by say.
func StopNow(ctx context.Context, c client.Client, store blob.Store, runID string, arg workflows.Command, say func(string)) (workflows.Stopped, error) {
	stopped, err := workflows.StopNow(ctx, c, runID, arg, workflows.Patience{}, say)
	if err != nil {
		return stopped, UnknownRun(err, runID)
	}
	if stopped.Forced != "" {
		if err := recordForced(ctx, store, runID, arg, stopped); err != nil {
			return stopped, fmt.Errorf("run %s is terminated, and the store does not say so: %w", runID, err)
		}
	}
	return stopped, nil
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

// startPatience is how long a command waits for a run to accept its configuration.
const startPatience = 30 * time.Second

// AwaitStart waits until a run has accepted its configuration. It is no error that no
// worker has taken the run yet.
func AwaitStart(ctx context.Context, c client.Client, runID string, notes io.Writer) (workflows.RunStatus, error) {
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

// Pin keeps the checkpoint of a step until Unpin, and returns the reason that the list of
// checkpoints shows.
func Pin(ctx context.Context, r *history.Run, step int, reason string) (kept string, err error) {
	return changePin(ctx, r, step, func(cursor int) error {
		return checkpoint.Pin(ctx, r.Store(), r.CheckpointFolder(), cursor, reason)
	})
}

// Unpin lets the checkpoint of a step go, unless the list shows another reason to keep it.
func Unpin(ctx context.Context, r *history.Run, step int) (kept string, err error) {
	return changePin(ctx, r, step, func(cursor int) error {
		return checkpoint.Unpin(ctx, r.Store(), r.CheckpointFolder(), cursor)
	})
}

func changePin(ctx context.Context, r *history.Run, step int, change func(cursor int) error) (kept string, err error) {
	cursor := r.Plan.SFTSteps + step
	err = change(cursor)
	if errors.Is(err, blob.ErrNotExist) {
		return "", cli.Usagef("run %s has no complete checkpoint of step %d (temper run checkpoints %s lists them): %w", r.ID(), step, r.ID(), err)
	}
	if err != nil {
		return "", err
	}
	checkpoints, err := r.Checkpoints(ctx)
	if i := slices.IndexFunc(checkpoints, func(c history.Checkpoint) bool { return c.Cursor == cursor }); i >= 0 {
		kept = checkpoints[i].Kept
	}
	return kept, err
}
