package node

import (
	"net/http"

	"temper/sandbox"
	"temper/sandbox/codejudge"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/metrics"
	"temper/sandbox/pool"
	"temper/sandbox/session"
)

// Status is the answer of a node at httpapi.PathStatus. The path /status belongs to the
// Code-Judge API.
type Status struct {
	jail.Report
	Build    string         `json:"build,omitempty"`
	Load     httpapi.Load   `json:"load"`
	Pool     pool.Stats     `json:"pool"`
	Sessions session.Stats  `json:"sessions"`
	Limits   sandbox.Limits `json:"limits"` // defaults of calls that state none
}

func (n *node) status() Status {
	return Status{
		Report: n.jail.Report(), Build: n.cfg.Build, Load: n.load(),
		Pool: n.pool.Stats(), Sessions: n.sessions.Stats(), Limits: n.jail.Defaults(),
	}
}

// load returns the load that streams announce.
func (n *node) load() httpapi.Load {
	s := n.pool.Stats()
	return httpapi.Load{Slots: s.Slots, Busy: s.Busy, Waiting: s.Waiting, Queue: s.Queue, Draining: n.gate.draining()}
}

// sources returns the metrics besides the calls.
func (n *node) sources() metrics.Sources {
	layers := map[string]bool{}
	for _, l := range n.jail.Report().Layers {
		layers[l.Name] = l.On
	}
	return metrics.Sources{
		Build: n.cfg.Build, Layers: layers,
		Load: n.load,
		Zygotes: func() metrics.Zygotes {
			s := n.pool.Stats()
			return metrics.Zygotes{Alive: s.Zygotes, Deaths: s.Deaths}
		},
		Sessions: func() metrics.Sessions {
			s := n.sessions.Stats()
			return metrics.Sessions{Live: s.Kernels, Known: s.Sessions}
		},
	}
}

// handler serves every API of the node. The listener checks the callers.
func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.NewHandler(n.exec, httpapi.Config{
		Logger: n.logger, Load: n.load, Budget: n.budget, Status: func() any { return n.status() },
		CloseSession: n.sessions.Drop,
	}))
	judge := codejudge.NewHandler(n.exec, codejudge.Config{Logger: n.logger, Limits: n.cfg.Judge, Budget: n.budget, Load: func() codejudge.Load {
		l := n.load()
		return codejudge.Load{Queue: l.Waiting, Workers: l.Slots}
	}})
	for _, path := range codejudge.Paths() {
		mux.Handle(path, judge)
	}
	mux.Handle("GET "+metrics.Path, n.metrics.Handler())
	mux.HandleFunc("GET "+httpapi.PathReady, func(w http.ResponseWriter, _ *http.Request) {
		if n.gate.draining() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
		}
	})
	return mux
}
