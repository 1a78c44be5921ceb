package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/blob/storeurl"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/temporalclient"
)

// openStore opens the store that the process configuration names.
func openStore(ctx context.Context, p *config.Process) (blob.Store, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	place, err := p.StorePlace()
	if err != nil {
		return nil, err
	}
	return storeurl.Open(ctx, place)
}

// probeTime bounds how long a store is asked at a start.
const probeTime = 30 * time.Second

// probeStore finds out that a store cannot be used before anything relies on it.
func probeStore(ctx context.Context, s blob.Store) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return blob.Probe(ctx, s)
}

// sweepStore removes what uploads of dead processes left in the store. A store
// that cannot is no reason not to work.
func sweepStore(ctx context.Context, s blob.Store, log *slog.Logger) {
	sweeper, ok := s.(blob.Sweeper)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	n, err := sweeper.Sweep(ctx, time.Now())
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("old uploads stay in the store", "err", err)
	case n > 0:
		log.Info("old uploads aborted", "num_uploads", n)
	}
}

// connect dials Temporal and opens the store. check, when given, runs first, so
// that a mistake in the input is told even when no server is there.
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
	c, err := dial(ctx, p, cli.NewLogger("client"))
	return c, store, err
}

// connectAs is connect for a process that has checked everything and has a log.
func connectAs(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, blob.Store, error) {
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	c, err := dial(ctx, p, log)
	return c, store, err
}

// connectWorker is connect for a process that works on tasks. Those of its
// predecessors that died are given back before it returns.
func connectWorker(ctx context.Context, p *config.Process, role string, log *slog.Logger) (client.Client, blob.Store, func(), error) {
	store, err := openStore(ctx, p)
	if err != nil {
		return nil, nil, nil, err
	}
	held, err := temporalclient.Hold(filepath.Join(p.Home, "held", role))
	if err != nil {
		return nil, nil, nil, err
	}
	done := func() { _ = held.Close() } // a successor clears away what is left
	c, err := temporalclient.Dial(ctx, temporalclient.Config{
		Address: p.TemporalAddress, Namespace: p.Namespace, Logger: cli.NewLogger("client"), Held: held,
	})
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	if given := held.GiveBack(ctx, c, p.Namespace); given.Workers > 0 {
		log.Info("gave back tasks of processes that died", "workers", given.Workers,
			"activities", given.Activities, "unnoted", given.Unnoted, "workflow_tasks", given.WorkflowTasks)
	}
	return c, store, func() { done(); c.Close() }, nil
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
