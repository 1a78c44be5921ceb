// Package runclient carries out what people ask of runs, by a command or on a page: submit, fork,
// steer, stop and pin them, list them, and follow them to their end. It speaks to a Temporal
// server and to a store, and prints what it finds; it has no flags.
//
// Invariant: a request is checked, with every mistake in one error, before anything starts.
package runclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/temporalclient"
	"temper/workers"
	"temper/workflows"
)

// Connect dials Temporal and opens the store. check, when given, runs first, so
// that a mistake in the input is reported even when no server is there.
func Connect(ctx context.Context, p *config.Process, check func(context.Context, blob.Store) error) (client.Client, blob.Store, error) {
	store, err := workers.OpenStore(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if check != nil {
		if err := check(ctx, store); err != nil {
			return nil, nil, err
		}
	}
	c, err := workers.Dial(ctx, p, cli.NewLogger("client"))
	if err == nil && p.UIAddress == config.DefaultUI { // no address is configured
		if address, ok := temporalclient.AskUI(ctx, c, p.Namespace); ok {
			p.UIAddress = address
		}
	}
	return c, store, err
}

// ConnectAs is connect for a process that has checked everything and has a log.
func ConnectAs(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, blob.Store, error) {
	store, err := workers.OpenStore(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	c, err := workers.Dial(ctx, p, log)
	return c, store, err
}

// StoreOf returns a function that opens the store of p.
func StoreOf(p *config.Process) func(context.Context) (blob.Store, error) {
	return func(ctx context.Context) (blob.Store, error) { return workers.OpenStore(ctx, p) }
}

// Find opens the store of the process and finds a run in it.
func Find(ctx context.Context, p *config.Process, id string) (*history.Run, error) {
	store, err := workers.OpenStore(ctx, p)
	if err != nil {
		return nil, err
	}
	return history.Open(ctx, store, id)
}

// UnknownRun turns the server's answers into what a person can act on.
func UnknownRun(err error, runID string) error {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &missing):
		return cli.Usagef("run %q is not running on this Temporal server (temper run list shows what the store has)", runID)
	case fault.Of(err) == fault.Refused:
		return cli.Usage(err)
	case errors.As(err, &refused):
		return cli.Usagef("run %s: %w", runID, workflows.Failure(err))
	case strings.Contains(err.Error(), "already completed"): // an update of a closed workflow
		return cli.Usagef("run %s has ended already", runID)
	default:
		return workflows.Failure(err)
	}
}

// Page is the link to a workflow's page, "" without a web UI.
func Page(p *config.Process, workflowID string) string {
	if p.UIAddress == "" {
		return ""
	}
	id := strings.ReplaceAll(workflowID, "/", "%2F")
	return fmt.Sprintf("http://%s/namespaces/%s/workflows/%s", p.UIAddress, p.Namespace, id)
}
