package gateway

import "net/http"

// Routes serves the list of nodes without a listener.
func (g *Gateway) Routes() http.Handler {
	mux := http.NewServeMux()
	(&nodesAPI{registry: g.registry}).route(mux)
	return mux
}

var ParseAddress = parseAddress

// Abort ends a gateway without a drain.
func (g *Gateway) Abort() {
	g.Drain()
	g.end()
	g.calls.Wait()
	g.tasks.Wait()
}
