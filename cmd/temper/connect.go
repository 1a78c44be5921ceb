package main

import (
	"context"
	"log/slog"
	"os"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/config"
	"temper/internal/temporalclient"
)

// openStore opens the store that the process configuration names.
func openStore(p *config.Process) (blob.Store, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	place, err := p.StorePlace()
	if err != nil {
		return nil, err
	}
	if place.Kind != config.StoreFile {
		return nil, usagef("--store %s: this build knows file stores only", place)
	}
	return fileblob.New(place.Dir)
}

// connect dials Temporal and opens the store. check, when given, runs first, so
// that a mistake in the input is told even when no server is there.
func connect(ctx context.Context, p *config.Process, check func(context.Context, blob.Store) error) (client.Client, blob.Store, error) {
	store, err := openStore(p)
	if err != nil {
		return nil, nil, err
	}
	if check != nil {
		if err := check(ctx, store); err != nil {
			return nil, nil, err
		}
	}
	c, err := dial(ctx, p, newLogger("client"))
	return c, store, err
}

// connectAs is connect for a process that has checked everything and has a log.
func connectAs(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, blob.Store, error) {
	store, err := openStore(p)
	if err != nil {
		return nil, nil, err
	}
	c, err := dial(ctx, p, log)
	return c, store, err
}

func dial(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, error) {
	return temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace, Logger: log})
}

// supervisorPID is the process whose tree makes up the service: the supervisor
// that started this role, or this process itself.
func supervisorPID() int {
	if os.Getenv("TEMPER_SUPERVISED") != "" {
		return os.Getppid()
	}
	return os.Getpid()
}
