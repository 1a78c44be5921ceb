package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"temper/sandbox/httpapi"
)

// PathNodes is the path of the list of nodes: POST a NodeAddress to join or to renew the
// lease, DELETE PathNodes/{address} to leave. Both need the token of nodes: a foreign node
// would see every program.
const PathNodes = "/v1/nodes"

// NodeAddress is the body of a node that joins: host:port, or a URL of that.
type NodeAddress struct {
	Address string `json:"address"`
}

// maxAddressBody is ample for a host name.
const maxAddressBody = 4 << 10

// nodesAPI serves the list of nodes over HTTP.
type nodesAPI struct{ registry *registry }

// route adds the list of nodes to mux.
func (a *nodesAPI) route(mux *http.ServeMux) {
	mux.HandleFunc("POST "+PathNodes, a.serveJoin)
	mux.HandleFunc("DELETE "+PathNodes+"/{address...}", a.serveLeave)
}

func (a *nodesAPI) serveJoin(w http.ResponseWriter, r *http.Request) {
	var body NodeAddress
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAddressBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		a.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, "body: an object with the address of a node is expected")
		return
	}
	// Only the configuration of this machine may name a Unix socket.
	if strings.HasPrefix(body.Address, httpapi.UnixPrefix) {
		a.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, "a node joins with host:port, not with a Unix socket")
		return
	}
	address, err := parseAddress(body.Address)
	if err != nil {
		a.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, err.Error())
		return
	}
	fresh, err := a.registry.list(address, Lease) //nolint:contextcheck // the link outlives the request
	switch {
	case errors.Is(err, errTooMany):
		a.fail(w, http.StatusTooManyRequests, httpapi.CodeOverloaded, err.Error())
	case err != nil:
		a.fail(w, http.StatusServiceUnavailable, httpapi.CodeUnavailable, err.Error())
	case fresh:
		a.registry.log.Info("sandbox node joins", "node", address)
		a.write(w, http.StatusCreated, map[string]any{"address": address, "lease_ms": Lease.Milliseconds()})
	default:
		a.write(w, http.StatusOK, map[string]any{"address": address, "lease_ms": Lease.Milliseconds()})
	}
}

func (a *nodesAPI) serveLeave(w http.ResponseWriter, r *http.Request) {
	address, err := parseAddress(r.PathValue("address"))
	if err != nil {
		a.fail(w, http.StatusBadRequest, httpapi.CodeInvalid, err.Error())
		return
	}
	switch err := a.registry.remove(address); {
	case errors.Is(err, errConfigured):
		a.fail(w, http.StatusConflict, httpapi.CodeConflict, fmt.Sprintf("node %s: %v", address, err))
		return
	case err != nil:
		a.fail(w, http.StatusNotFound, httpapi.CodeInvalid, fmt.Sprintf("node %s: %v", address, err))
		return
	}
	a.registry.log.Info("sandbox node leaves", "node", address)
	a.write(w, http.StatusOK, NodeAddress{Address: address})
}

// refuse answers for a gateway without a token for nodes.
func (a *nodesAPI) refuse(w http.ResponseWriter, _ *http.Request) {
	a.fail(w, http.StatusForbidden, httpapi.CodeUnauthorized, "this gateway takes no nodes: start it with a token for them, or name them when it is started")
}

func (a *nodesAPI) fail(w http.ResponseWriter, status int, code httpapi.Code, message string) {
	a.write(w, status, map[string]httpapi.Failure{"error": {Code: code, Message: message}})
}

func (a *nodesAPI) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		a.registry.log.Debug("write response", "err", err)
	}
}
