package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
)

func TestAddressesHaveOneForm(t *testing.T) {
	for _, c := range []struct{ text, want, complaint string }{
		{"127.0.0.1:80", "127.0.0.1:80", ""},
		{"http://Node-1:8765/", "node-1:8765", ""},
		{"https://node-1:8765", "https://node-1:8765", ""},
		{"[::1]:80", "[::1]:80", ""},
		{"http://user:hunter2@node:80", "", "credentials"},
		{"user:hunter2@node:80", "", "credentials"},
		{"node", "", "host:port"},
		{":80", "", "host:port"},
		{"node:", "", "host:port"},
		{"", "", "host:port"},
		{"ftp://node:80", "", "ftp"},
		{"0.0.0.0:80", "", "names no machine"},
		{"[::]:80", "", "names no machine"},
		{"http://node:80/v1", "", "only host and port"},
		{"http://node:80?x=hunter2", "", "only host and port"},
		{"http://hunter2:80\x7f", "", "not a URL"},
	} {
		got, err := gateway.ParseAddress(c.text)
		if c.complaint == "" {
			if got != c.want || err != nil {
				t.Errorf("%q: got %q, %v, want %q", c.text, got, err, c.want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.complaint) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %q, %v, want a complaint with %q and no secret", c.text, got, err, c.complaint)
		}
	}
}

func TestBadNodesAreRefused(t *testing.T) {
	g := open(t, &fleet{}, gateway.Config{})
	for _, body := range []string{
		`{"address":"unix:/run/x"}`, `{"address":"http://u:p@h:1"}`, `{"address":""}`, `{}`, `x`,
		`{"addr":"h:1"}`, `{"address":"` + strings.Repeat("h", 5000) + `:1"}`,
	} {
		w := httptest.NewRecorder()
		g.Routes().ServeHTTP(w, httptest.NewRequest(http.MethodPost, gateway.PathNodes, strings.NewReader(body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"invalid"`) {
			t.Errorf("%.40s: got %d %s, want 400 with a reason", body, w.Code, w.Body)
		}
	}
	if n := len(g.Stats().Nodes); n != 0 {
		t.Errorf("%d nodes are listed", n)
	}
	_, err := gateway.New(t.Context(), gateway.Config{Nodes: []string{"a:1", "nowhere", "http://h:1/x"}})
	if err == nil || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "h:1") {
		t.Errorf("New with two bad addresses: %v", err)
	}
}

func TestJoinListsAndUnlists(t *testing.T) {
	f := &fleet{}
	f.add("node:1", 1)
	g := open(t, f, gateway.Config{})
	var mu sync.Mutex
	fail := 1
	routes := g.Routes()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, `{"error":{"code":"unauthorized","message":"wrong token"}}`, http.StatusUnauthorized)
			return
		}
		if fail > 0 && r.Method == http.MethodDelete {
			t.Error("left before it was listed")
		}
		routes.ServeHTTP(w, r)
		fail = 0
	}))
	defer web.Close()
	logger := slog.New(slog.DiscardHandler)
	if err := gateway.Join(t.Context(), web.URL, "node:1", "wrong", nil, logger); err == nil || !strings.Contains(err.Error(), "wrong token") || strings.Contains(err.Error(), "Bearer") {
		t.Errorf("with a wrong token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Join(ctx, web.URL, "http://node:1", "secret", nil, logger) }()
	must(t, g, sandbox.Request{ID: "x"}) // waits for the node
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Join: %v", err)
	}
	if s := g.Stats(); len(s.Nodes) != 0 {
		t.Errorf("nodes after the end: %+v", s.Nodes)
	}
}

func TestJoinWaitsForAGatewayThatIsNotThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := gateway.Join(ctx, "127.0.0.1:1", "node:1", "", nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("Join: %v", err)
	}
}

// TestGatewayThatDiedIsJoinedAgainAtOnce: its successor has the node long before the
// node's next regular word.
func TestGatewayThatDiedIsJoinedAgainAtOnce(t *testing.T) {
	serve := func(address string) (*gateway.Gateway, *http.Server, string) {
		t.Helper()
		f := &fleet{}
		f.add("node:1", 1)
		g := open(t, f, gateway.Config{})
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		web := &http.Server{Handler: g.Routes(), ReadHeaderTimeout: time.Minute}
		ended := make(chan error, 1)
		go func() { ended <- web.Serve(l) }()
		t.Cleanup(func() {
			_ = web.Close() // perhaps for the second time
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		return g, web, l.Addr().String()
	}
	awaitNode := func(g *gateway.Gateway) time.Duration {
		t.Helper()
		began := time.Now()
		for len(g.Stats().Nodes) != 1 {
			if time.Since(began) > time.Minute {
				t.Fatal("the node is not listed")
			}
			time.Sleep(5 * time.Millisecond)
		}
		return time.Since(began)
	}
	first, web, address := serve("127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Join(ctx, address, "node:1", "", nil, slog.New(slog.DiscardHandler)) }()
	awaitNode(first)
	if err := web.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // a start
	second, _, _ := serve(address)
	if took := awaitNode(second); took > gateway.Rejoin/2 {
		t.Errorf("it took %v", took)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Join: %v", err)
	}
}
