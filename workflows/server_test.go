//go:build integration

package workflows_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"temper/internal/proc"
	"temper/internal/proc/testbin"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// dialServer connects to the server of TEMPORAL_ADDRESS, or starts the one of this
// repository for the time of the test.
func dialServer(t testing.TB) client.Client {
	t.Helper()
	address := os.Getenv("TEMPORAL_ADDRESS")
	if address == "" {
		address = startServer(t)
	}
	c, err := temporalclient.Dial(t.Context(), temporalclient.Config{Address: address, Identity: "temper-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func startServer(t testing.TB) string {
	t.Helper()
	return startServerIn(t, t.TempDir())
}

// startServerIn keeps the database in dir.
func startServerIn(t testing.TB, dir string) string {
	t.Helper()
	temporald, err := testbin.Server("..", "temporald")
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(temporald, "--db", filepath.Join(dir, "temporal.db"),
		"--port", freePort(t), "--ui-port", "0", "--exit-with-parent")
	var stderr bytes.Buffer // the server complains when pollers leave: shown only on failure
	server.Stderr = &stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			t.Logf("temporald: %v\n%s", err, &stderr)
		}
	})
	var ready struct{ Address string }
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		t.Fatalf("temporald said %q: %v", line, err)
	}
	return ready.Address
}

func freePort(t testing.TB) string {
	t.Helper()
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// serve runs the three workers with the fakes, with the pollers and slots of
// the real ones, until the returned function is called.
func serve(t testing.TB, c client.Client, w *world) (stop func()) {
	t.Helper()
	return serveControl(t, c, w, &fakeControl{w})
}

// serveControl is serve with other bookkeeping.
func serveControl(t testing.TB, c client.Client, w *world, bookkeeping any) (stop func()) {
	t.Helper()
	quiet := worker.Options{
		MaxConcurrentActivityTaskPollers: 8, MaxConcurrentWorkflowTaskPollers: 8,
		WorkerStopTimeout: time.Second, MaxHeartbeatThrottleInterval: time.Second, Interceptors: workflows.Interceptors(),
	}
	control := worker.New(c, workflows.QueueControl, quiet)
	registerAll(control)
	control.RegisterActivity(bookkeeping)
	quiet.DisableWorkflowWorker = true
	rollout := worker.New(c, workflows.QueueRollout, quiet)
	rollout.RegisterActivity(&fakeRollouts{w})
	quiet.MaxConcurrentActivityExecutionSize, quiet.MaxConcurrentActivityTaskPollers = 1, 1
	trainer := worker.New(c, workflows.QueueTrainer, quiet)
	trainer.RegisterActivity(&fakeTrainer{w})
	all := []worker.Worker{control, rollout, trainer}
	for _, w := range all {
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, w := range all {
			w.Stop()
		}
	}
}

// start runs a workflow known by its type name and JSON only, as a plain
// client does.
func start(t testing.TB, c client.Client, id, kind, input string) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), startOptions(id), kind, json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// registerAll registers the workflows, and the one below which tests start a stage.
func registerAll(r worker.Registry) {
	workflows.Register(r)
	r.RegisterWorkflowWithOptions(runOfOneStage, workflow.RegisterOptions{Name: "runOfOneStage"})
}

// runOfOneStage is a run that consists of one stage: a stage refuses to run alone.
func runOfOneStage(ctx workflow.Context, id string, in json.RawMessage) error {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id})
	return workflow.ExecuteChildWorkflow(ctx, workflows.TypeStage, in).Get(ctx, nil)
}

// startStage runs a stage below a run that does nothing else.
func startStage(t testing.TB, c client.Client, id, input string) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), startOptions(id+"/run"), "runOfOneStage", id, json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "start of "+id, func() bool {
		_, err := workflows.Describe(t.Context(), c, id, "")
		return err == nil
	})
	return run
}

// await polls, because the server tells of a workflow's end up to 20 s late.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func closed(c client.Client, id string) func() bool {
	return func() bool {
		d, err := workflows.Describe(context.Background(), c, id, "")
		return err == nil && d.WorkflowExecutionInfo.CloseTime != nil
	}
}

func uniqueRun(t testing.TB, name string) string {
	t.Helper()
	if *update {
		return name
	}
	return fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
}
