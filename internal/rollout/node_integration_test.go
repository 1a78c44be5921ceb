//go:build integration

package rollout_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/node"
	"temper/sandbox/server"
)

// nodeAddress makes this test binary a sandbox node: a process of its own can be
// killed, and its processor time be measured.
const nodeAddress = "TEMPER_TEST_NODE"

func TestMain(m *testing.M) {
	address := os.Getenv(nodeAddress)
	if address == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := node.Serve(ctx, node.Config{
		Server: server.Config{Listen: address}, Python: os.Getenv("TEMPER_PYTHON"), Zygotes: 1,
		OnReady: func(node.Ready) { fmt.Println("ready") },
	}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sandboxNode is a node at one address, whose process comes and goes.
type sandboxNode struct {
	address string
	cmd     *exec.Cmd
}

// startNode starts a node that ends with the test, and returns a client of it.
func startNode(t testing.TB) (*sandboxNode, *httpapi.Client) {
	t.Helper()
	folder, err := os.MkdirTemp("", "node") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	n := &sandboxNode{address: "unix:" + filepath.Join(folder, "s")}
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	client, err := httpapi.NewClient(n.address, httpapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		n.end(syscall.SIGTERM)
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return n, client
}

func (n *sandboxNode) start() error {
	n.cmd = exec.Command(os.Args[0]) //nolint:gosec // this binary
	n.cmd.Env = append(os.Environ(), nodeAddress+"="+n.address)
	n.cmd.Stderr = os.Stderr
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		return err
	}
	line := make([]byte, 64)
	if read, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:read]), "ready") {
		return fmt.Errorf("node: %q, %w", line[:read], err)
	}
	return nil
}

// end signals the node's process, waits for it, and returns the processor time of
// it and of all that it started.
func (n *sandboxNode) end(sig os.Signal) time.Duration {
	if n.cmd.ProcessState == nil {
		_ = n.cmd.Process.Signal(sig) // it may be gone, which is as well
		_ = n.cmd.Wait()              // says that it was killed
	}
	return n.cmd.ProcessState.UserTime() + n.cmd.ProcessState.SystemTime()
}

func patient() limits {
	cfg := inSession()
	cfg.ToolTimeout, cfg.MaxAttempts, cfg.Backoff, cfg.MaxBackoff = 20*time.Second, 70, 50*time.Millisecond, time.Second
	cfg.MaxToolResponseChars = 0
	return cfg
}

type nodeClient interface {
	sandbox.Executor
	sandbox.SessionCloser
}

func sampleOn(t testing.TB, cfg limits, f *chat.Format, engine *inferencetest.Script, client nodeClient, n int) rl.Group {
	t.Helper()
	deps := cfg.deps(f, engine, client)
	deps.Sessions = client
	r, err := rollout.New(cfg.Config, deps)
	if err != nil {
		t.Fatal(err)
	}
	s := longSpec()
	s.Problem.Fixture = problem().Fixture
	g, err := r.Group(t.Context(), s, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range g.Trajectories {
		if tr.StopReason == rl.StopInfraError {
			t.Errorf("trajectory %d: %s", tr.Rollout, tr.Err)
		}
	}
	return g
}

// turnOf is the number of turns that lie before a request.
func turnOf(f *chat.Format, req inference.Request) int {
	return strings.Count(f.Tokenizer().Decode(req.Tokens), chat.TokenStart+"assistant") - 1
}

// cellEngine writes a program for each turn: variables, functions, modules, inputs,
// random numbers, files, errors and limits, all of which later cells look at.
func cellEngine(f *chat.Format) *inferencetest.Script {
	return &inferencetest.Script{Reply: func(req inference.Request) []int32 {
		seed := req.Seed % 1000
		turns := []string{
			fmt.Sprintf("import random, os\nx = [%d, random.random(), input()]\ndef f(n): return n * x[0]", seed),
			"x.append(f(len(x)))\nopen('/tmp/kept', 'a').write('%s.' % len(x))\nprint(x, hash('s'))",
			"x.append(random.random())\nx.append(len(__import__('sys').modules) > 0)\n1/0",
			"x.append('lost')\nos._exit(3)",
			"x, open('/tmp/kept').read(), sorted(n for n in globals() if n[0] != '_')",
			"x = x + [input()]\nx.append(random.random())\nf(x)",
			"print(sum(i for i in range(200000)) + x[0], x[-1])\n_",
		}
		at := turnOf(f, req)
		text := answer("1")
		if at < len(turns) {
			text = chat.RenderCall(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: turns[at], Input: fmt.Sprintf("in%d\n", at)}.Arguments()})
		}
		return append(f.Tokenizer().EncodeSpecial(text), f.Stop()[0])
	}}
}

// TestKillsOfANodeAreInvisible: a sandbox node that is killed again and again while
// trajectories run their cells changes no bit of them.
func TestKillsOfANodeAreInvisible(t *testing.T) {
	f := newFormat(t)
	n, client := startNode(t)
	const trajectories = 24
	want := sampleOn(t, patient(), f, cellEngine(f), client, trajectories)
	for _, tr := range want.Trajectories {
		got := responses(tr)
		if len(got) != 7 || !strings.HasPrefix(got[1], fmt.Sprintf("ok: [%d, 0.", tr.Seed%1000)) || !strings.Contains(got[1], "'in0'") ||
			!strings.HasPrefix(got[2], "error: ZeroDivisionError") || got[3] != "error: exit status 3" ||
			strings.Contains(got[4], "lost") || !strings.HasSuffix(got[4], "['db', 'f', 'os', 'random', 'x'])") || !strings.HasPrefix(got[5], "ok: [") {
			t.Fatalf("trajectory %d: %q", tr.Rollout, got)
		}
	}
	var status node.Status
	if err := client.Status(t.Context(), &status); err != nil || status.Sessions.Sessions != 0 || status.Sessions.Kernels != 0 {
		t.Errorf("sessions after the last trajectory: %+v, %v", status.Sessions, err)
	}

	deadly := &deadlyClient{Client: client, node: n, every: 20}
	got := sampleOn(t, patient(), f, cellEngine(f), deadly, trajectories)
	if err := client.Status(t.Context(), &status); err == nil {
		deadly.rebuilds += status.Sessions.Rebuilds
	}
	t.Logf("%d kills, %d kernels made again", deadly.kills, deadly.rebuilds)
	if deadly.kills < 5 || deadly.rebuilds < 5 || deadly.err != nil {
		t.Errorf("only %d kills and %d rebuilds; %v", deadly.kills, deadly.rebuilds, deadly.err)
	}
	times := clocks()
	if diff := cmp.Diff(got, want, times); diff != "" {
		t.Errorf("kills changed the trajectories (-got +want):\n%s", diff)
	}
}

// deadlyClient kills the node each time that it has given a number of answers, while
// other cells run, and loses the last of them.
type deadlyClient struct {
	*httpapi.Client
	node  *sandboxNode
	every int

	mu             sync.Mutex
	answers, kills int
	rebuilds       int64
	err            error
}

func (d *deadlyClient) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := d.Client.Execute(ctx, req)
	if err != nil {
		return res, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answers++; d.answers%d.every != 0 || d.err != nil {
		return res, nil
	}
	var status node.Status
	if d.Status(ctx, &status) == nil {
		d.rebuilds += status.Sessions.Rebuilds
	}
	d.node.end(syscall.SIGKILL)
	d.err = d.node.start()
	d.kills++
	return sandbox.Result{}, fmt.Errorf("%w: killed by the test", sandbox.ErrUnavailable)
}
