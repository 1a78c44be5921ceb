package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"temper/sandbox/httpapi"
)

// PathNodes is where nodes are listed: POST a NodeAddress to join or to renew
// the lease, DELETE PathNodes/{address} to leave. They need the token of nodes: a
// node of a stranger would see every program.
const PathNodes = "/v1/nodes"

// NodeAddress is the body of a node that joins: host:port, or a URL of that.
type NodeAddress struct {
	Address string `json:"address"`
}

// maxAddressBody is ample for a host name.
const maxAddressBody = 4 << 10

// route adds the list of nodes to mux.
func (g *Gateway) route(mux *http.ServeMux) {
	mux.HandleFunc("POST "+PathNodes, g.serveJoin)
	mux.HandleFunc("DELETE "+PathNodes+"/{address...}", g.serveLeave)
}

func (g *Gateway) serveJoin(w http.ResponseWriter, r *http.Request) {
	var body NodeAddress
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAddressBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		g.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, "body: an object with the address of a node is expected")
		return
	}
	// A Unix socket is a matter of this machine's configuration: a caller from
	// elsewhere must not choose one.
	if strings.HasPrefix(body.Address, httpapi.UnixPrefix) {
		g.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, "a node joins with host:port, not with a Unix socket")
		return
	}
	address, err := parseAddress(body.Address)
	if err != nil {
		g.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, err.Error())
		return
	}
	fresh, err := g.enroll(address, Lease) //nolint:contextcheck // the keeper outlives the request
	switch {
	case errors.Is(err, errTooMany):
		g.fail(w, http.StatusTooManyRequests, httpapi.CodeOverloaded, err.Error())
	case err != nil:
		g.fail(w, http.StatusServiceUnavailable, httpapi.CodeUnavailable, err.Error())
	case fresh:
		g.cfg.Logger.Info("sandbox node joins", "node", address)
		g.write(w, http.StatusCreated, map[string]any{"address": address, "lease_ms": Lease.Milliseconds()})
	default:
		g.write(w, http.StatusOK, map[string]any{"address": address, "lease_ms": Lease.Milliseconds()})
	}
}

func (g *Gateway) serveLeave(w http.ResponseWriter, r *http.Request) {
	address, err := parseAddress(r.PathValue("address"))
	if err != nil {
		g.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, err.Error())
		return
	}
	switch err := g.dismiss(address); {
	case errors.Is(err, errConfigured):
		g.fail(w, http.StatusConflict, httpapi.CodeConflict, fmt.Sprintf("node %s: %v", address, err))
		return
	case err != nil:
		g.fail(w, http.StatusNotFound, httpapi.CodeInvalid, fmt.Sprintf("node %s: %v", address, err))
		return
	}
	g.cfg.Logger.Info("sandbox node leaves", "node", address)
	g.write(w, http.StatusOK, NodeAddress{Address: address})
}

// refuseNodes answers for a gateway that has no token for nodes.
func (g *Gateway) refuseNodes(w http.ResponseWriter, _ *http.Request) {
	g.fail(w, http.StatusForbidden, httpapi.CodeUnauthorized, "this gateway takes no nodes: start it with a token for them, or name them when it is started")
}

func (g *Gateway) fail(w http.ResponseWriter, status int, code httpapi.Code, message string) {
	g.write(w, status, map[string]httpapi.Failure{"error": {Code: code, Message: message}})
}

func (g *Gateway) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		g.cfg.Logger.Debug("write response", "err", err)
	}
}
