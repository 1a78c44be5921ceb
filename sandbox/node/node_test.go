package node_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/node"
	"temper/sandbox/sandboxtest"
)

// serve runs a node on a Unix socket until the test ends.
func serve(t *testing.T, cfg node.Config) *httpapi.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan string, 1)
	cfg.Listen = httpapi.UnixPrefix + t.TempDir() + "/s"
	cfg.OnReady = func(addr string, _ node.Report) { ready <- addr }
	done := make(chan error, 1)
	go func() { done <- node.Serve(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	var addr string
	select {
	case addr = <-ready:
	case err := <-done:
		t.Fatalf("Serve: %v", err)
	}
	client, err := httpapi.NewClient(addr, httpapi.Options{Token: cfg.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return client
}

func TestNodeConforms(t *testing.T) {
	client := serve(t, node.Config{Zygotes: 2, Token: "secret"})
	sandboxtest.Run(t, func(*testing.T) sandbox.Executor { return client })
	var status node.Status
	if err := client.Status(t.Context(), &status); err != nil {
		t.Fatal(err)
	}
	if status.Pool.Zygotes != 2 || status.Pool.Executed == 0 || status.Version == "" || len(status.Layers) == 0 {
		t.Errorf("status %+v lacks something", status)
	}
}

func TestServeNamesWhatItCannotUse(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		name string
		cfg  node.Config
		want string
	}{
		{"busy port", node.Config{Listen: busy.Addr().String()}, busy.Addr().String() + ": bind: address already in use"},
		{"missing interpreter", node.Config{Listen: "127.0.0.1:0", Python: "python-nowhere"}, "python interpreter python-nowhere: not found"},
		{"unknown layer", node.Config{Listen: "127.0.0.1:0", Require: []string{"moat"}}, "moat (no such layer)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := node.Serve(t.Context(), c.cfg, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line with %q", err, c.want)
			}
		})
	}
}
