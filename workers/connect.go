package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/blob/storeurl"
	"temper/internal/config"
	"temper/internal/role"
	"temper/internal/temporalclient"
	"temper/trainer/weights/sharedmem"
)

// Place holds the options that all roles share.
type Place struct {
	config.Process
	Log *slog.Logger
	// Patience is how long a role that starts waits for the Temporal server; 0 gives up
	// at once.
	Patience time.Duration
	// Weights is the memory in which a trainer and the engines of its host share policies;
	// nil reads all of them from the store.
	Weights *sharedmem.Segments
	// Supervisor is the process that started this one and the others of a service; 0 for none.
	Supervisor int
}

// OpenStore opens the store that a process configuration names.
func OpenStore(ctx context.Context, p *config.Process) (blob.Store, error) {
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

// ProbeStore finds out that a store cannot be used before anything relies on it.
func ProbeStore(ctx context.Context, s blob.Store) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return blob.Probe(ctx, s)
}

// Dial connects a client of the service that works on no tasks.
func Dial(ctx context.Context, p *config.Process, log *slog.Logger) (client.Client, error) {
	return temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace, Logger: log})
}

// connection holds the connections of a role that polls a queue.
type connection struct {
	client client.Client
	store  blob.Store
	close  func()
}

// connect reaches Temporal and the store. v is told of both needs.
func (p Place) connect(ctx context.Context, name string, v *Vitals) (*connection, error) {
	store, err := OpenStore(ctx, &p.Process)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	c, err := p.awaitServer(ctx, temporalclient.Config{
		Address: p.TemporalAddress, Namespace: p.Namespace, Logger: p.Log.With("queue_of", name),
		Identity: fmt.Sprintf("%s %d@%s", name, os.Getpid(), host), Metrics: sdkMetrics{registry: v.Metrics},
	})
	if err != nil {
		return nil, err
	}
	v.Need(string(role.NeedTemporal), func(ctx context.Context) error {
		_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	})
	v.Need(string(role.NeedStore), func(ctx context.Context) error { return answers(ctx, store) })
	return &connection{client: c, store: store, close: c.Close}, nil
}

// serverPause lies between two attempts to reach a server that is starting.
const serverPause = 100 * time.Millisecond

// awaitServer connects to Temporal. A role that starts while its server is started
// again waits: its death would count against it, and the next start would come later.
func (p Place) awaitServer(ctx context.Context, cfg temporalclient.Config) (client.Client, error) {
	for end := time.Now().Add(p.Patience); ; {
		c, err := temporalclient.Dial(ctx, cfg)
		if err == nil || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(serverPause):
		}
	}
}

// storeQuestion is a key that is never written.
const storeQuestion = "probe/health"

// answers asks a store for something small; that it is not there is an answer.
func answers(ctx context.Context, s blob.Store) error {
	_, err := s.Stat(ctx, storeQuestion)
	if errors.Is(err, blob.ErrNotExist) {
		return nil
	}
	return err
}

// sweepStore removes what uploads of dead processes left in the store. A store
// that cannot do so is no reason not to work.
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
