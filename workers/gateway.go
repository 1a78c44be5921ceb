package workers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"temper/internal/role"
	"temper/sandbox"
	"temper/sandbox/codejudge"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/metrics"
)

// GatewayOptions configure a gateway role.
type GatewayOptions struct {
	Service gateway.Service
	// Judge bounds the programs of Code-Judge clients.
	Judge codejudge.Limits
	Log   *slog.Logger
}

// Gateway spreads sandbox calls over nodes. It is ready while a node is there, and
// answers for its health on the address where it takes calls.
func Gateway(o GatewayOptions) Role {
	return Role{
		Row: role.Of(role.Gateway),
		Run: func(ctx context.Context, v *Vitals) error {
			o.Service.Mount = func(g *gateway.Gateway) (sandbox.Executor, map[string]http.Handler) {
				v.Need(string(role.NeedSandbox), func(context.Context) error { return anyNode(g) })
				return mountOnGateway(g, o, v)
			}
			stop := context.AfterFunc(ctx, v.Drain)
			defer stop()
			return gateway.Serve(ctx, o.Service, o.Log)
		},
	}
}

// anyNode returns an error while no node can take a call.
func anyNode(g *gateway.Gateway) error {
	for _, n := range g.Stats().Nodes {
		if n.Up {
			return nil
		}
	}
	return errors.New("no node is up")
}

// mountOnGateway records every call and adds the Code-Judge API, the metrics and the
// answer about readiness.
func mountOnGateway(g *gateway.Gateway, o GatewayOptions, v *Vitals) (sandbox.Executor, map[string]http.Handler) {
	recorder := metrics.New(gatewaySources(g, o.Service.Build), o.Log)
	exec := metrics.Wrap(g, recorder)
	judge := codejudge.NewHandler(exec, codejudge.Config{Logger: o.Log, Limits: o.Judge, Budget: o.Service.Budget, Load: func() codejudge.Load {
		l := g.Load()
		return codejudge.Load{Queue: l.Waiting, Workers: l.Slots}
	}})
	more := map[string]http.Handler{"GET " + metrics.Path: recorder.Handler(), "GET " + httpapi.PathReady: v.ReadyHandler()}
	for _, path := range codejudge.Paths() {
		more[path] = judge
	}
	return exec, more
}

// gatewaySources returns the sources of the metrics besides the calls.
func gatewaySources(g *gateway.Gateway, build string) metrics.Sources {
	return metrics.Sources{
		Build: build,
		Load:  g.Load,
		Nodes: func() []metrics.Node {
			var nodes []metrics.Node
			for _, n := range g.Stats().Nodes {
				nodes = append(nodes, metrics.Node{
					Name: n.Address, Up: n.Up, Slots: n.Slots, InFlight: n.InFlight, Retries: n.Retried, Deaths: n.Deaths,
				})
			}
			return nodes
		},
		Router: func() metrics.Router {
			s := g.Stats()
			waiting := make(map[string]int, len(s.Runs))
			for _, r := range s.Runs {
				waiting[r.Run] = r.Waiting
			}
			return metrics.Router{WaitingByRun: waiting, Overloads: s.Totals.Overloaded, Bytes: s.Bytes, MaxBytes: s.QueueBytes}
		},
	}
}
