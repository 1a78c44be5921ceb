package main

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/temporalclient"
	"temper/workers"
)

// openStore opens the store that the process configuration names.
func openStore(ctx context.Context, p *config.Process) (blob.Store, error) {
	return workers.OpenStore(ctx, p)
}

// connect dials Temporal and opens the store. check, when given, runs first, so
// that a mistake in the input is reported even when no server is there.
func connect(ctx context.Context, p *config.Process, check func(context.Context, blob.Store) error) (client.Client, blob.Store, error) {
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if check != nil {
		if err := check(ctx, store); err != nil {
			return nil, nil, err
		}
	}
	c, err := workers.Dial(ctx, p, cli.NewLogger("client"))
	if err == nil && p.UIAddress == config.DefaultUI { // nobody has said where it is
		if address, ok := temporalclient.AskUI(ctx, c, p.Namespace); ok {
			p.UIAddress = address
		}
	}
	return c, store, err
}

// connectAs is connect for a process that has checked everything and has a log.
func connectAs(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, blob.Store, error) {
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	c, err := workers.Dial(ctx, p, log)
	return c, store, err
}
