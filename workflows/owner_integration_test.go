//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"temper/activities"
	"temper/internal/blob/memblob"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/retrain"
	"temper/internal/run/runtest"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// owningControl opens runs as the real one does; the rest is fake.
type owningControl struct {
	*fakeControl
	real *activities.Control
}

func (c *owningControl) OpenRun(ctx context.Context, in run.Input) (run.Plan, error) {
	if _, err := c.real.OpenRun(ctx, in); err != nil {
		return run.Plan{}, err
	}
	return c.fakeControl.OpenRun(ctx, in)
}

func (c *owningControl) PlanRetrain(ctx context.Context, in activities.PlanRetrainInput) (retrain.Plan, error) {
	plan, err := c.fakeControl.PlanRetrain(ctx, in)
	plan.Config = runtest.Recipe
	return plan, err
}

// plainHouse is a server with workers, and clients that know it by JSON alone.
type plainHouse struct {
	*testing.T
	c     client.Client
	w     *world
	store *memblob.Store
}

func newPlainHouse(t *testing.T) plainHouse {
	t.Helper()
	address := startServer(t)
	ours, err := temporalclient.Dial(t.Context(), temporalclient.Config{Address: address, Identity: "temper-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ours.Close)
	plain, err := client.Dial(client.Options{HostPort: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	h := plainHouse{T: t, c: plain, w: newWorld(2), store: memblob.New()}
	control := &owningControl{&fakeControl{h.w}, &activities.Control{Store: h.store, Find: workflows.FindOwner(ours)}}
	t.Cleanup(serveControl(t, ours, h.w, control))
	h.inLetters(address)
	return h
}

// end starts a workflow, waits for its end and returns its error.
func (h plainHouse) end(id, kind, input string) error {
	h.Helper()
	flow := start(h, h.c, id, kind, input)
	await(h, "end of "+id, closed(h.c, id))
	return flow.Get(h.Context(), nil)
}

// refused expects that a workflow is refused with a text.
func (h plainHouse) refused(id, input string, want ...string) {
	h.Helper()
	err := h.end(id, workflows.TypeRun, input)
	for _, text := range want {
		if err == nil || strings.Count(err.Error(), text) != 1 {
			h.Errorf("%s with %s: %v\nwant %q once", id, input, err, text)
		}
	}
}

func (h plainHouse) config() string {
	h.Helper()
	return fmt.Sprintf(`{"config": %s}`, runtest.Text(h, runtest.Recipe))
}

// takeOvers counts the events of that kind.
func (h plainHouse) takeOvers(runID string) int {
	h.Helper()
	n := 0
	for key := range runtest.Dump(h, h.store) {
		if strings.HasPrefix(key, artifact.Layout{RunID: runID}.Events().Dir()) && artifact.EventKind(key) == run.EventTakeOver {
			n++
		}
	}
	return n
}

// TestPlainClients starts, steals and repeats runs with nothing but the SDK and JSON.
func TestPlainClients(t *testing.T) {
	h := newPlainHouse(t)
	t.Run("owners", func(t *testing.T) { plainHouse{t, h.c, h.w, h.store}.owners() })
	t.Run("firings", func(t *testing.T) { plainHouse{t, h.c, h.w, h.store}.firings() })
}

// owners: no other workflow gets a live run, the run itself goes on as if nothing had
// been tried, and a run whose owner has ended goes over by order.
func (h plainHouse) owners() {
	t := h.T
	h.w.hold = 300 * time.Millisecond
	start(h, h.c, "rl/a", workflows.TypeRun, h.config())
	await(t, "step 1", func() bool { return h.w.count("sample 1") > 0 })
	h.refused("thief", `{"run_id": "a"}`, "run a belongs to workflow rl/a (execution ", "is still open")
	h.refused("thief", `{"run_id": "a", "take_over": true}`, "still open")
	h.refused("thief", `{"run_id": "a", "config": "x.yaml"}`, "x.yaml")
	await(t, "end of the run", closed(h.c, "rl/a"))
	if s, err := workflows.Status(t.Context(), h.c, "a"); err != nil || s.State != workflows.StateDone || h.w.count("finish") != 1 {
		t.Errorf("%v: the run is %s, with %d summaries", err, s.State, h.w.count("finish"))
	}
	_, err := workflows.Send(t.Context(), h.c, "a", workflows.CommandPause, workflows.Command{})
	if err == nil || !strings.Contains(err.Error(), "the run is done") {
		t.Errorf("pause of a run that is done: %v", err)
	}

	start(h, h.c, "rl/b", workflows.TypeRun, h.config())
	await(t, "step 1 of b", func() bool { return h.w.count("sample 1") > 1 })
	if err := h.c.TerminateWorkflow(t.Context(), "rl/b", "", "test"); err != nil {
		t.Fatal(err)
	}
	if s, err := workflows.Status(t.Context(), h.c, "b"); err != nil || s.State != workflows.StateFailed || !strings.Contains(s.Reason, "terminated") {
		t.Errorf("%v: status of a terminated run: %s, %s", err, s.State, s.Reason)
	}
	h.refused("other", `{"run_id": "b"}`, "which was terminated", `{"run_id": "b", "take_over": true}`)
	if err := h.end("other", workflows.TypeRun, `{"run_id": "b", "take_over": true}`); err != nil || h.takeOvers("b") != 1 {
		t.Errorf("taken over with %v, %d events", err, h.takeOvers("b"))
	}
	if err := h.end("b", workflows.TypeRun, `{}`); err == nil || !strings.Contains(err.Error(), "workflow other (execution ") {
		t.Errorf("the former owner gets its run back: %v", err)
	}
	h.reset("rl/a")
	if h.takeOvers("a") != 1 {
		t.Errorf("%d take-overs by a reset, want 1", h.takeOvers("a"))
	}
}

// reset resets a workflow that has ended to its beginning and waits for its end.
func (h plainHouse) reset(id string) {
	h.Helper()
	d, err := workflows.Describe(h.Context(), h.c, id, "")
	if err != nil {
		h.Fatal(err)
	}
	_, err = h.c.ResetWorkflowExecution(h.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowExecution: d.WorkflowExecutionInfo.Execution, Reason: "test", RequestId: "reset-" + id,
		WorkflowTaskFinishEventId: 4,
	})
	if err != nil {
		h.Fatal(err)
	}
	await(h, "end of "+id, closed(h.c, id))
	if err := h.c.GetWorkflow(h.Context(), id, "").Get(h.Context(), nil); err != nil {
		h.Errorf("after a reset: %v", err)
	}
}

// inLetters starts a run over the wire under an id that no gRPC header can hold: it is
// answered, and not left open for ever.
func (h plainHouse) inLetters(address string) {
	h.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		h.Fatal(err)
	}
	defer conn.Close()
	_, err = workflowservice.NewWorkflowServiceClient(conn).StartWorkflowExecution(h.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowId: "größe", WorkflowType: &common.WorkflowType{Name: workflows.TypeRun},
		TaskQueue: &taskqueue.TaskQueue{Name: workflows.QueueControl}, RequestId: "1",
	})
	if err != nil {
		h.Fatal(err)
	}
	await(h, "end of a run in letters", func() bool {
		found, err := h.c.ListWorkflow(h.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Failed'"})
		return err == nil && len(found.GetExecutions()) == 1
	})
}

// firings: three of a cron schedule and of a Temporal Schedule make three runs each,
// of RLRun and of Retrain.
func (h plainHouse) firings() {
	t := h.T
	h.w.hold, h.w.plan.SFTSteps = 0, 0
	for _, kind := range []string{workflows.TypeRun, workflows.TypeRetrain} {
		input := json.RawMessage(map[string]string{
			workflows.TypeRun: h.config(), workflows.TypeRetrain: `{"id": "nightly", "config": "/r.yaml", "data": ["new"], "set": {"seed": 3}}`,
		}[kind])
		options := startOptions("cron-" + kind)
		options.CronSchedule = "@every 1s"
		if _, err := h.c.ExecuteWorkflow(t.Context(), options, kind, input); err != nil {
			t.Fatal(err)
		}
		if kind == workflows.TypeRun {
			await(t, "the firing to come in the list", func() bool {
				open, err := workflows.OpenRuns(t.Context(), h.c)
				return err == nil && slices.Contains(open, workflows.OpenRun{RunID: "cron-RLRun", Workflow: "cron-RLRun", State: workflows.StateScheduled})
			})
		}
		_, err := h.c.ScheduleClient().Create(t.Context(), client.ScheduleOptions{
			ID: "schedule-" + kind, Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: time.Second}}},
			Action: &client.ScheduleWorkflowAction{ID: "schedule-" + kind, Workflow: kind, TaskQueue: workflows.QueueControl, Args: []any{input}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	opened := func(prefix string) (n int) {
		h.w.mu.Lock()
		defer h.w.mu.Unlock()
		for id := range h.w.opened {
			if strings.HasPrefix(id, prefix) {
				n++
			}
		}
		return n
	}
	for _, way := range []string{"cron-", "schedule-"} {
		for _, kind := range []string{workflows.TypeRun, workflows.TypeRetrain} {
			await(t, "three runs of "+way+kind, func() bool { return opened(way+kind+"-20") >= 3 })
		}
	}
	failed, err := h.c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Failed' AND (WorkflowId STARTS_WITH 'cron-' OR WorkflowId STARTS_WITH 'schedule-' OR WorkflowId STARTS_WITH 'rl/')"})
	if err != nil || len(failed.GetExecutions()) > 0 {
		t.Errorf("%v, failed: %v", err, failed.GetExecutions())
	}
}
