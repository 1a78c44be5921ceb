package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/server"
)

// serveGateway runs a gateway on a port until the test ends.
func serveGateway(t *testing.T, s gateway.Service) (url string) {
	t.Helper()
	ready := make(chan gateway.Ready, 1)
	s.Server.Listen = "127.0.0.1:0"
	s.OnReady = func(r gateway.Ready) { ready <- r }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, s, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case r := <-ready:
		return r.URL
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return ""
	}
}

// ask sends a request with a token and returns status and body.
func ask(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestWhoMayCallMayNotJoin: nodes have a token of their own, with and without one for
// callers, and what the configuration names stays.
func TestWhoMayCallMayNotJoin(t *testing.T) {
	const configured = "127.0.0.1:9"
	for _, clients := range []string{"", "clients"} {
		url := serveGateway(t, gateway.Service{
			Config: gateway.Config{Nodes: []string{configured}}, Server: server.Config{Token: clients}, NodeToken: "nodes",
		})
		for i, c := range []struct {
			method, path, token, body string
			want                      int
		}{
			{"POST", gateway.PathNodes, clients, `{"address":"127.0.0.1:1"}`, 401},
			{"POST", gateway.PathNodes, "nodes", `{"address":"127.0.0.1:1"}`, 201},
			{"DELETE", gateway.PathNodes + "/127.0.0.1:1", clients, "", 401},
			{"DELETE", gateway.PathNodes + "/127.0.0.1:1", "nodes", "", 200},
			{"DELETE", gateway.PathNodes + "/" + configured, "nodes", "", 409},
			{"GET", httpapi.PathStatus, clients, "", 200},
		} {
			if got, text := ask(t, c.method, url+c.path, c.token, c.body); got != c.want {
				t.Errorf("clients' token %q, %d: %s %s with %q: %d %s, want %d", clients, i, c.method, c.path, c.token, got, text, c.want)
			}
		}
		if clients != "" {
			if got, text := ask(t, "GET", url+httpapi.PathStatus, "nodes", ""); got != 401 {
				t.Errorf("a node reads the status: %d %s, want 401", got, text)
			}
		}
	}
}

// TestNobodyJoinsWithoutATokenOfNodes, whatever token callers have.
func TestNobodyJoinsWithoutATokenOfNodes(t *testing.T) {
	for _, clients := range []string{"", "clients"} {
		url := serveGateway(t, gateway.Service{Server: server.Config{Token: clients}})
		for _, path := range []string{gateway.PathNodes, gateway.PathNodes + "/127.0.0.1:1"} {
			for _, method := range []string{"POST", "DELETE"} {
				got, text := ask(t, method, url+path, clients, fmt.Sprintf(`{"address":%q}`, "127.0.0.1:1"))
				if got != http.StatusForbidden || !strings.Contains(text, "takes no nodes") {
					t.Errorf("%s %s: %d %s, want 403 that says why", method, path, got, text)
				}
			}
		}
	}
}
