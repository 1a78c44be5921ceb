package node

import (
	"encoding/json"
	"net/http"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// PathStatus answers with a Status.
const PathStatus = "/v1/status"

// Status is what a node says of itself.
type Status struct {
	jail.Report
	Build  string         `json:"build,omitempty"`
	Load   httpapi.Load   `json:"load"`
	Pool   pool.Stats     `json:"pool"`
	Limits sandbox.Limits `json:"limits"` // of calls that state none
}

func (n *node) status() Status {
	return Status{
		Report: n.jail.Report(), Build: n.cfg.Build, Load: n.load(), Pool: n.pool.Stats(), Limits: n.jail.Defaults(),
	}
}

// load is what streams are told.
func (n *node) load() httpapi.Load {
	s := n.pool.Stats()
	return httpapi.Load{Slots: s.Slots, Busy: s.Busy, Waiting: s.Waiting, Queue: s.Queue, Draining: n.gate.draining()}
}

// handler puts every API of the node on one listener. Who may call is the
// listener's business.
func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.NewHandler(n.gate, httpapi.Config{
		Logger: n.logger, Load: n.load, Status: func() any { return n.status() },
	}))
	mux.HandleFunc("GET "+PathStatus, n.serveStatus)
	return mux
}

func (n *node) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(n.status())
	if err != nil { // numbers and strings always encode
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the caller has gone when this fails
}
