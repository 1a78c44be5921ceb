package runclient

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/singleflight"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/modeldir"
	"temper/internal/service"
	"temper/internal/temporalclient"
	"temper/ui"
	"temper/workflows"
)

// Steerer gives the commands of the dashboard, as temper run does. It connects when it is first asked, and
// again when that has failed.
type Steerer struct {
	process *config.Process
	store   blob.Store

	dials singleflight.Group
	mu    sync.Mutex
	c     client.Client
}

// NewSteerer returns a Steerer for the server and the store of a process. The caller closes it.
func NewSteerer(p *config.Process, store blob.Store) *Steerer {
	return &Steerer{process: p, store: store}
}

var (
	_ ui.Steerer = (*Steerer)(nil)
	_ ui.Place   = (*Steerer)(nil)
)

// connectTime bounds the wait for a server: a page waits for the answer.
const connectTime = 2 * time.Second

// connected dials once for all who wait for it: a page asks for several things at a time, and
// they would wait one behind the other.
func (s *Steerer) connected(ctx context.Context) (client.Client, error) {
	dialled := s.dials.DoChan("", func() (any, error) { return s.dial(context.WithoutCancel(ctx)) })
	select {
	case got := <-dialled:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(client.Client), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Steerer) dial(ctx context.Context) (client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		return s.c, nil
	}
	c, err := temporalclient.Dial(ctx, temporalclient.Config{
		Address: s.process.TemporalAddress, Namespace: s.process.Namespace, Logger: slog.New(slog.DiscardHandler), Timeout: connectTime,
	})
	if err != nil {
		return nil, err
	}
	s.c = c
	return c, nil
}

// Close ends the connection.
func (s *Steerer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		s.c.Close()
	}
}

// Status implements ui.Steerer.
func (s *Steerer) Status(ctx context.Context, runID string) (workflows.RunStatus, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return workflows.RunStatus{}, err
	}
	return workflows.Status(ctx, c, runID)
}

// Open implements ui.Steerer.
func (s *Steerer) Open(ctx context.Context) ([]workflows.OpenRun, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return workflows.OpenRuns(ctx, c)
}

// Send implements ui.Steerer.
func (s *Steerer) Send(ctx context.Context, runID, command string, arg workflows.Command) (string, error) {
	if command == ui.OrderFork || command == ui.OrderPin || command == ui.OrderUnpin {
		return s.order(ctx, runID, command, arg)
	}
	c, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	if command == workflows.CommandRestart && arg.RunID == "" {
		arg.RunID = Successor(runID)
	}
	return Send(ctx, c, s.process.Namespace, runID, command, arg)
}

// Processes implements ui.Place.
func (s *Steerer) Processes(ctx context.Context) ([]service.Process, error) {
	return service.Processes(ctx, s.process)
}

// Schedules implements ui.Place.
func (s *Steerer) Schedules(ctx context.Context) ([]temporalclient.View, error) {
	c, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return temporalclient.All(ctx, c, s.store, temporalclient.DescribeWhole)
}

// order carries out what is no command to a workflow: another run, or a checkpoint that
// stays. temper run fork and temper run checkpoints do the same.
func (s *Steerer) order(ctx context.Context, runID, command string, arg workflows.Command) (string, error) {
	if command == ui.OrderFork {
		return s.fork(ctx, runID, arg)
	}
	step, from, err := modeldir.ParseStep(string(arg.From))
	if err == nil && from != "" {
		err = cli.Usagef("from: is %q, want the number of a step, or sft", from)
	}
	if err != nil {
		return "", err
	}
	r, err := history.Open(ctx, s.store, runID)
	if err != nil {
		return "", err
	}
	if command == ui.OrderPin {
		_, err = Pin(ctx, r, step, fmt.Sprintf("%s (%s)", arg.Reason, arg.By))
	} else {
		_, err = Unpin(ctx, r, step)
	}
	return fmt.Sprintf("the checkpoint of step %d is %sned", step, command), err
}

// fork starts a run from a checkpoint of another.
func (s *Steerer) fork(ctx context.Context, parent string, arg workflows.Command) (string, error) {
	f := Fork{Parent: parent, RunID: arg.RunID, WithoutAmendments: arg.WithoutAmendments, Step: cmp.Or(string(arg.From), run.FromLast)}
	in, err := f.Input()
	if err != nil {
		return "", err
	}
	in.Set = arg.Set
	begin, err := f.Resolve(ctx, s.store, &in)
	if err != nil {
		return "", err
	}
	c, err := s.connected(ctx)
	if err != nil {
		return "", err
	}
	if err := Start(ctx, c, in); err != nil {
		return "", err
	}
	return fmt.Sprintf("run %s begins behind step %d of %s", in.RunID, begin.Step, parent), nil
}
