//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// longRunSteps is small in the pipeline; 510 is the paper's run.
var longRunSteps = flag.Int("longrun.steps", 34, "steps of TestLongRun, in stages of the paper's shares")

// The server's limits.
const (
	maxHistoryEvents = 51_200
	maxHistoryBytes  = 50 << 20
)

// TestPaperRunInVirtualTime makes all steps of the paper's run.
func TestPaperRunInVirtualTime(t *testing.T) { virtualRun(t, paperStages()...).check(t) }

// TestLongRun makes a run of the paper's shape on the real server with activities
// that do nothing, deploys another build of the control worker in the middle of
// it, and counts what the run costs: histories, payloads, actions and storage.
func TestLongRun(t *testing.T) {
	dir := t.TempDir()
	weights := newScale()
	c := dialScaled(t, startServerIn(t, dir), weights)
	n := *longRunSteps
	w := newWorld(n*300/510, n*85/510, n-n*300/510-n*85/510)
	w.plan.CheckpointEvery = 10
	others := serveDevices(t, c, w)
	defer others()
	stop := serveBuild(t, c, w, "build-1")
	time.Sleep(2 * time.Second) // the server's own housekeeping comes first
	before, began := databaseBytes(t, dir), time.Now()
	id := uniqueRun(t, "long")
	flow := start(t, c, workflows.RunWorkflowID(id), workflows.TypeRun, `{"config": "configs/demo.yaml"}`)
	awaitFor(t, "the middle of the run", 30*time.Minute, func() bool { return w.count("train") > n/2 })
	stop()
	defer serveBuild(t, c, w, "build-2")()
	awaitFor(t, "the end of the run", 30*time.Minute, closed(c, flow.GetID()))
	wall := time.Since(began)
	checkEachStepOnce(t, w, n)
	weights.check(t)
	cost := costOf(t, c, workflows.RunWorkflowID(id))
	cost.check(t)
	grown := databaseBytes(t, dir) - before
	per := func(x int) float64 { return float64(x) / float64(n) }
	t.Logf("%d steps in %v: %.1f ms a step with activities that do nothing", n, wall.Round(time.Second), per(int(wall.Milliseconds())))
	t.Logf("per step: %.1f events, %.0f bytes of history, %.1f actions without heartbeats, %.0f bytes of database",
		per(cost.events), per(cost.bytes), per(cost.actions), per(grown))
	t.Logf("largest history: %d events, %d bytes, of %s", cost.mostEvents, cost.mostBytes, cost.largest)
	t.Logf("%d workflows, %d of them continued as new", cost.workflows, cost.continued)
	if want := continuations(w.plan.Stages, workflows.StepsPerExecution); cost.continued != want {
		t.Errorf("%d executions continued as new, want %d", cost.continued, want)
	}
	if cost.builds["build-1"] == 0 || cost.builds["build-2"] == 0 {
		t.Errorf("workflow tasks by build: %v, want some of both", cost.builds)
	}
}

// continuations is how often stages continue as new.
func continuations(stages []run.Stage, perExecution int) (n int) {
	for _, s := range stages {
		n += (s.Steps - 1) / perExecution
	}
	return n
}

// TestStageContinuesOnTheServer makes a stage in several executions, one after the
// other, which a run of few steps does not come to.
func TestStageContinuesOnTheServer(t *testing.T) {
	const steps, perExecution = 11, 4
	c := dialServer(t)
	w := newWorld(steps)
	defer serve(t, c, w)()
	in := stageInput(w, perExecution)
	in.Run.RunID = uniqueRun(t, "continued")
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	id := workflows.StageWorkflowID(in.Run.RunID, 1, "hop1")
	startStage(t, c, id, string(data))
	awaitFor(t, "the end of the stage", 5*time.Minute, closed(c, id))
	checkEachStepOnce(t, w, steps)
	if cost := costOf(t, c, id); cost.continued != continuations(w.plan.Stages, perExecution) || cost.mostEvents > 150 {
		t.Errorf("%d executions continued as new, %d events in the longest; want %d and few", cost.continued, cost.mostEvents, continuations(w.plan.Stages, perExecution))
	}
	var out workflows.StageResult
	if err := c.GetWorkflow(t.Context(), id, "").Get(t.Context(), &out); err != nil || out.Step != steps || out.Policy.Version != steps {
		t.Errorf("the stage ends with %+v, %v; want step and policy %d", out, err, steps)
	}
}

func dialScaled(t *testing.T, address string, weights *scale) client.Client {
	t.Helper()
	options, err := temporalclient.Load(temporalclient.Config{Address: address, Identity: "temper-test"})
	if err != nil {
		t.Fatal(err)
	}
	options.DataConverter = weights
	c, err := client.DialContext(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serveBuild runs a control worker that says which build it is.
func serveBuild(t *testing.T, c client.Client, w *world, build string) (stop func()) {
	t.Helper()
	control := worker.New(c, workflows.QueueControl, worker.Options{
		MaxConcurrentWorkflowTaskPollers: 8, MaxConcurrentActivityTaskPollers: 8, StickyScheduleToStartTimeout: time.Second,
		DeploymentOptions: worker.DeploymentOptions{Version: worker.WorkerDeploymentVersion{DeploymentName: "temper", BuildID: build}},
	})
	workflows.Register(control)
	control.RegisterActivity(&paperControl{&fakeControl{w}})
	return startWorker(t, control)
}

func serveDevices(t *testing.T, c client.Client, w *world) (stop func()) {
	t.Helper()
	trainer := worker.New(c, workflows.QueueTrainer, worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 1, MaxConcurrentActivityExecutionSize: 1})
	trainer.RegisterActivity(&fakeTrainer{w})
	rollout := worker.New(c, workflows.QueueRollout, worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 8})
	rollout.RegisterActivity(&fakeRollouts{w})
	first, second := startWorker(t, trainer), startWorker(t, rollout)
	return func() { first(); second() }
}

func startWorker(t *testing.T, w worker.Worker) (stop func()) {
	t.Helper()
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w.Stop
}

func awaitFor(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// databaseBytes is the size of the database with its log.
func databaseBytes(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "temporal.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database in %s (%v)", dir, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += int(info.Size())
	}
	return n
}

// cost is what a run and all workflows below it left on the server.
type cost struct {
	events, bytes, actions, continued int
	mostEvents, mostBytes, workflows  int
	largest                           string
	builds                            map[string]int // workflow tasks
}

func costOf(t *testing.T, c client.Client, runWorkflow string) *cost {
	t.Helper()
	out := &cost{builds: map[string]int{}}
	var page []byte
	for {
		found, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowId STARTS_WITH '%s'", runWorkflow), PageSize: 1000, NextPageToken: page,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found.Executions {
			if e.Status == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW {
				out.continued++
			}
			out.add(t, c, e.Execution.WorkflowId, e.Execution.RunId)
		}
		if page = found.NextPageToken; len(page) == 0 {
			return out
		}
	}
}

func (k *cost) add(t *testing.T, c client.Client, id, runID string) {
	t.Helper()
	d, err := workflows.Describe(context.Background(), c, id, runID)
	if err != nil {
		t.Fatal(err)
	}
	events, bytes := int(d.WorkflowExecutionInfo.HistoryLength), int(d.WorkflowExecutionInfo.HistorySizeBytes)
	k.workflows++
	k.events, k.bytes = k.events+events, k.bytes+bytes
	if events > k.mostEvents {
		k.mostEvents, k.largest = events, id
	}
	k.mostBytes = max(k.mostBytes, bytes)
	for _, e := range fetch(t, c, id, runID).Events {
		k.actions += actionsOf(e)
		if done := e.GetWorkflowTaskCompletedEventAttributes(); done != nil {
			k.builds[buildOf(done)]++
		}
	}
}

func buildOf(done *history.WorkflowTaskCompletedEventAttributes) string {
	if v := done.GetDeploymentVersion(); v != nil {
		return v.BuildId
	}
	return done.GetWorkerVersion().GetBuildId() //nolint:staticcheck // the field of workers that do not route by version
}

// actionsOf counts an event as Temporal Cloud bills it: starts of workflows and
// activities, timers, signals, updates and search attributes. Local activities of
// one workflow task are one action; a task that ran some has a marker each, so
// that this counts more than is billed.
func actionsOf(e *history.HistoryEvent) int {
	switch e.EventType {
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, enums.EVENT_TYPE_TIMER_STARTED,
		enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
		enums.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES, enums.EVENT_TYPE_MARKER_RECORDED,
		enums.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
		return 1
	default:
		return 0
	}
}

// check wants a tenth of the server's limits at most.
func (k *cost) check(t *testing.T) {
	t.Helper()
	if k.mostEvents > maxHistoryEvents/10 || k.mostBytes > maxHistoryBytes/10 {
		t.Errorf("a history has %d events and %d bytes, want at most a tenth of %d and %d", k.mostEvents, k.mostBytes, maxHistoryEvents, maxHistoryBytes)
	}
	if k.workflows < 2 || !strings.Contains(k.largest, "stage") {
		t.Errorf("%d workflows, the largest %s; want a run and its stages, and a stage to be the largest", k.workflows, k.largest)
	}
}
