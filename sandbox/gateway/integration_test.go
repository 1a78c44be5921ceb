//go:build integration

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
	"temper/sandbox/node"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/server"
)

// nodeKey makes the test binary a node, so that one can be killed.
const nodeKey = "GATEWAY_TEST_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(nodeKey) != "" {
		os.Exit(serveNode())
	}
	os.Exit(m.Run())
}

func serveNode() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := node.Serve(ctx, node.Config{
		Server: server.Config{Listen: "127.0.0.1:0"}, Zygotes: 1, Slots: 8,
		OnReady: func(r node.Ready) {
			if err := server.WriteReady(os.Stdout, r.Address, nil); err != nil {
				os.Exit(1)
			}
		},
	}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n") // the exit status says enough
		return 1
	}
	return 0
}

type process struct {
	cmd     *exec.Cmd
	address string
}

// startNode returns a node in a process of its own.
func startNode(t *testing.T) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeKey+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be dead already
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("node is not ready: %v", err)
	}
	var ready struct{ Address string }
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return &process{cmd: cmd, address: ready.Address}
}

// startGateway serves a gateway until the test ends.
const nodeToken = "nodes"

func startGateway(t *testing.T, nodes ...string) string {
	t.Helper()
	return serveGateway(t, gateway.Service{Config: gateway.Config{Nodes: nodes}, NodeToken: nodeToken})
}

func dialGateway(t *testing.T, url string) *httpapi.Client {
	t.Helper()
	client, err := httpapi.NewClient(url, httpapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestGatewayConforms(t *testing.T) {
	client := dialGateway(t, startGateway(t, startNode(t).address))
	sandboxtest.Run(t, func(*testing.T) sandbox.Executor { return client })
	sandboxtest.RunSessions(t, func(*testing.T) sandbox.Executor { return client })
}

// TestKilledNodeLosesNothing kills one of two real nodes with SIGKILL in the
// middle of a load that a third one joins.
func TestKilledNodeLosesNothing(t *testing.T) {
	victim, stays := startNode(t), startNode(t)
	url := startGateway(t, victim.address, stays.address)
	client := dialGateway(t, url)
	const total = 600
	var done atomic.Int64
	var calls sync.WaitGroup
	for i := range total {
		calls.Go(func() {
			id := fmt.Sprint(i)
			res, err := client.Execute(t.Context(), sandbox.Request{
				ID: id, Stdin: id, Run: fmt.Sprint(i % 3), Code: "import time\ntime.sleep(.02)\nprint(input())",
			})
			if err != nil || res.ID != id || res.Stdout != id+"\n" {
				t.Errorf("call %s: got %+v, %v", id, res, err)
			}
			done.Add(1)
		})
	}
	waitFor(t, func() bool { return done.Load() > total/4 })
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	joins := startNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	var joined sync.WaitGroup
	joined.Go(func() {
		if err := gateway.Join(ctx, url, joins.address, nodeToken, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("Join: %v", err)
		}
	})
	calls.Wait()
	var s gateway.Stats
	if err := client.Status(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Totals.Done != total || s.Totals.Retried == 0 || s.Waiting != 0 || s.InFlight != 0 {
		t.Errorf("totals %+v, want %d done and some retried", s.Totals, total)
	}
	for _, n := range s.Nodes {
		if n.Address == joins.address && n.Done == 0 || n.Address == victim.address && (n.Up || n.Deaths != 1) {
			t.Errorf("node %+v", n)
		}
	}
	cancel()
	joined.Wait()
}

// TestSessionSurvivesItsNode rebuilds a real kernel on another node.
func TestSessionSurvivesItsNode(t *testing.T) {
	victim := startNode(t)
	url := startGateway(t, victim.address)
	client := dialGateway(t, url)
	cell := func(code string) sandbox.Result {
		t.Helper()
		res, err := client.Execute(t.Context(), sandbox.Request{ID: code, Run: "r", Session: "s", Code: code})
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return res
	}
	cell("x = 20")
	if res := cell("x += 1\nraise ValueError"); res.Status != sandbox.StatusError {
		t.Errorf("got %+v, want an error", res)
	}
	cell("import time\nx += 1\ntime.sleep(.1)")
	if err := victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var joined sync.WaitGroup
	joins := startNode(t)
	joined.Go(func() {
		if err := gateway.Join(ctx, url, joins.address, nodeToken, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("Join: %v", err)
		}
	})
	if res := cell("print(x)"); res.Stdout != "22\n" {
		t.Errorf("got %+v, want the state of the cells before", res)
	}
	cancel()
	joined.Wait()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing happens for 30s")
		}
	}
}
