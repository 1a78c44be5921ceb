package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// roleEnv makes the test binary act as temporald, or as a parent that starts one and waits.
const roleEnv = "TEMPORALD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "server":
		main()
		os.Exit(0)
	case "parent":
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), roleEnv+"=server")
		cmd.Stdout = os.Stdout
		_ = cmd.Run() // is killed before the child ends
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is one temporald under test.
type process struct {
	cmd   *exec.Cmd
	ready readyLine
}

// start runs temporald in the given role and waits for its ready line.
func start(t *testing.T, role string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := &process{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v", err)
	}
	if err := json.Unmarshal([]byte(line), &p.ready); err != nil || !p.ready.Ready {
		t.Fatalf("ready line %q: %v", line, err)
	}
	return p
}

// refuse runs temporald to its end and returns its exit status and stderr.
func refuse(t *testing.T, args ...string) (int, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleEnv+"=server")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("temporald %v: %v, want a refusal; output %q", args, err, out)
	}
	return exit.ExitCode(), string(out)
}

func port(t *testing.T) string {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(ports[0])
}

func dial(t *testing.T, addr string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func double(ctx workflow.Context, n int) (int, error) {
	err := workflow.UpsertTypedSearchAttributes(ctx,
		temporal.NewSearchAttributeKeyKeyword("RunID").ValueSet("r1"),
		temporal.NewSearchAttributeKeyKeyword("Stage").ValueSet("sft"),
		temporal.NewSearchAttributeKeyInt64("Step").ValueSet(int64(n)))
	return 2 * n, err
}

// runDouble executes one workflow, which upserts every search attribute.
func runDouble(t *testing.T, c client.Client, id string, n int) {
	t.Helper()
	w := worker.New(c, "test", worker.Options{})
	w.RegisterWorkflow(double)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: "test"}, double, n)
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if err := run.Get(ctx, &got); err != nil || got != 2*n {
		t.Fatalf("workflow %s = %d, %v; want %d", id, got, err, 2*n)
	}
}

func TestHistorySurvivesKill(t *testing.T) {
	args := []string{"--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", port(t), "--http-port", port(t)}
	first := start(t, "server", args...)
	t.Logf("first start: %d ms", first.ready.StartMS)
	runDouble(t, dial(t, first.ready.Address), "wf-1", 21)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // killed

	second := start(t, "server", append(args, "--retention", "48h")...)
	t.Logf("second start: %d ms", second.ready.StartMS)
	c := dial(t, second.ready.Address)
	events := 0
	for it := c.GetWorkflowHistory(t.Context(), "wf-1", "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); events++ {
		if _, err := it.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if events < 5 {
		t.Errorf("history of wf-1 has %d events after the kill, want at least 5", events)
	}
	runDouble(t, c, "wf-2", 4)
	ns, err := c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if got := ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(); got != 48*time.Hour {
		t.Errorf("retention of the reopened file = %v, want 48h", got)
	}
	if !ns.GetNamespaceInfo().GetCapabilities().GetWorkflowPause() {
		t.Error("namespace lacks the workflow pause capability")
	}
	for _, url := range []string{second.ready.UI + "/namespaces/default/workflows", second.ready.HTTP + "/api/v1/namespaces/default/workflows"} {
		if status, body := get(t, url); status != http.StatusOK || body == "" {
			t.Errorf("GET %s = %d, %d bytes", url, status, len(body))
		}
	}
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("stop by SIGTERM: %v, want exit 0", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // read in full below
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAddsAttributesToExistingNamespace(t *testing.T) {
	args := []string{"--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", "0"}
	first := start(t, "server", args...)
	c := dial(t, first.ready.Address)
	if _, err := c.OperatorService().RemoveSearchAttributes(t.Context(), &operatorservice.RemoveSearchAttributesRequest{
		Namespace: "default", SearchAttributes: []string{"Stage", "Step"},
	}); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Process.Signal(syscall.SIGINT)
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("stop by SIGINT: %v, want exit 0", err)
	}
	runDouble(t, dial(t, start(t, "server", args...).ready.Address), "wf", 1)
}

func TestStopsWithParent(t *testing.T) {
	p := start(t, "parent", "--db", filepath.Join(t.TempDir(), "t.db"), "--port", port(t), "--ui-port", "0", "--exit-with-parent")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for syscall.Kill(p.ready.PID, 0) == nil {
		if time.Now().After(deadline) {
			_ = syscall.Kill(p.ready.PID, syscall.SIGKILL)
			t.Fatal("temporald outlives its parent")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestRefusals(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }() // a listener nobody dialed
	taken := strconv.Itoa(busy.Addr().(*net.TCPAddr).Port)
	db := filepath.Join(t.TempDir(), "t.db")
	held := filepath.Join(t.TempDir(), "held.db")
	unlock, err := lockDatabase(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	old := filepath.Join(t.TempDir(), "old.db")
	for path, text := range map[string]string{old: "", old + ".lock": "1.2.3\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		exit int
		want string
	}{
		{"busy port", []string{"--db", db, "--port", taken, "--ui-port", "0"}, 1, "127.0.0.1:" + taken + " is in use by another process: choose another port with --port"},
		{"busy ui port", []string{"--ip", "localhost", "--db", db, "--port", port(t), "--ui-port", taken}, 1, "choose another port with --ui-port"},
		{"held file", []string{"--db", held}, 1, held + " is in use by another temporald"},
		{"file of another version", []string{"--db", old}, 1, "was written by server 1.2.3"},
		{"missing folder", []string{"--db", filepath.Join(db, "no", "t.db")}, 1, "--db: open"},
		{"unknown flag", []string{"--colour"}, 2, "-colour"},
		{"bad ip", []string{"--ip", "example"}, 2, `--ip "example" is not an IP address`},
		{"short retention", []string{"--retention", "5m"}, 2, "--retention 5m0s is below 1h"},
		{"same ports", []string{"--port", "9", "--ui-port", "9"}, 2, "--port and --ui-port are both 9"},
		{"stray argument", []string{"now"}, 2, `unexpected argument "now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, out := refuse(t, c.args...)
			if held == c.args[len(c.args)-1] { // it says first for whom it waits
				waits, rest, _ := strings.Cut(out, "\n")
				if !strings.Contains(waits, "waiting up to 5s for another temporald to leave "+held) {
					t.Errorf("the first line is %q", waits)
				}
				out = rest
			}
			if exit != c.exit || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
				t.Errorf("exit %d, output %q; want exit %d and one line with %q", exit, out, c.exit, c.want)
			}
		})
	}
}
