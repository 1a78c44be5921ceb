// Package workers builds the roles of the service: what one process of it is for,
// what that process must reach, and how it serves. It owns clients, factories of
// engines and learners, memory limits, task queues, health and metrics. It does not
// know flags, and it starts no process.
//
// Invariant: when Serve returns, the role polls nothing, none of its activities runs
// any more, except one that ignored its cancellation for longer than the stop
// timeout, and no probe is told that it is healthy.
package workers

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"temper/internal/proc"
	"temper/internal/role"
)

// Role is the purpose of one process of the service. Building one touches nothing: errors
// of its places show when it serves.
type Role struct {
	// Row is the role in the table of roles. Its needs must be reachable for the role to be ready. A role with
	// OwnListener answers for health and metrics in Run.
	role.Row
	// Queues are the task queues that it polls.
	Queues []string
	// Run serves until ctx ends, then drains. It tells vitals what the role needs and
	// when each of the Queues is polled.
	Run func(ctx context.Context, v *Vitals) error
}

// Vitals is where a running role says how it is and what it counts.
type Vitals struct {
	*proc.Health
	Metrics *prometheus.Registry
}

// ServeOptions define where a role answers for its health and metrics.
type ServeOptions struct {
	// Listen is host:port or unix:/path; port 0 takes any. Roles with a listener of
	// their own ignore it.
	Listen string
	// Insecure allows an address that other machines can reach.
	Insecure bool
	// OnReady is called once, when the role polls all its queues; nil is fine.
	OnReady func(address string)
	Log     *slog.Logger
}

// Serve runs the role until ctx ends, and answers /healthz, /readyz and /metrics
// meanwhile.
func (r Role) Serve(ctx context.Context, o ServeOptions) error {
	v := &Vitals{Health: proc.NewHealth(r.Name, r.Queues...), Metrics: newMetrics(r.Name)}
	if r.OwnListener {
		return r.Run(ctx, v)
	}
	if err := proc.CheckAddress(o.Listen, o.Insecure); err != nil {
		return err
	}
	l, err := proc.Listen(ctx, o.Listen, v.Handler(metricsHandler(v.Metrics)), o.Log)
	if err != nil {
		return err
	}
	defer l.Close(ctx)
	o.Log.Info("health is served", "address", l.Address())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-v.Served():
			if o.OnReady != nil {
				o.OnReady(l.Address())
			}
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error {
		defer cancel()
		return r.Run(ctx, v)
	})
	stop := context.AfterFunc(ctx, v.Drain)
	defer stop()
	return g.Wait()
}

// Together is several roles in one process, which shares its memory and its
// processors between them. The first that ends ends the others.
func Together(name string, roles ...Role) Role {
	out := Role{Row: role.Row{Name: name}}
	for _, r := range roles {
		out.Queues = append(out.Queues, r.Queues...)
		for _, n := range r.Needs {
			if !slices.Contains(out.Needs, n) {
				out.Needs = append(out.Needs, n)
			}
		}
	}
	out.Run = func(ctx context.Context, v *Vitals) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, r := range roles {
			g.Go(func() error { return r.Run(ctx, v) })
		}
		return g.Wait()
	}
	return out
}
