//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/taskqueue/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/history"
	"temper/internal/run"
	"temper/workflows"
)

// Both are small in the pipeline.
var (
	numInputs = flag.Int("doors.inputs", 8, "inputs of each workflow with one wrong value in TestInputsTakeAnything")
	everyDoor = flag.Bool("doors.all", false, "send everything to every signal and update, not every third message")
)

// house is a server with workers whose workflows are open to anybody.
type house struct {
	*testing.T
	c     client.Client
	w     *world
	runID string // that stands in its second step
	num   int
	stop  func() // ends the workers, once
}

func newHouse(t *testing.T) *house {
	c := dialServer(t)
	w := newWorld(3, 1)
	w.stuck = map[string]bool{"sample 2": true}
	w.checks = func(in run.Input) error {
		if err := history.CheckRunID(in.RunID); err != nil || in.Priority < 0 || in.Priority > 5 {
			return finalError("InvalidConfig", "not a run")
		}
		return nil
	}
	stop := sync.OnceFunc(serve(t, c, w))
	t.Cleanup(stop)
	return &house{T: t, c: c, w: w, stop: stop}
}

// live is a run in its second step: the one before, if that has no order to end.
func (h *house) live() string {
	h.Helper()
	if h.runID != "" {
		s, err := workflows.Status(h.Context(), h.c, h.runID)
		if err == nil && (s.State == workflows.StateTraining || s.State == workflows.StatePaused || s.State == workflows.StatePausing) && s.Stage == 1 {
			return h.runID
		}
		h.end()
	}
	h.num++
	h.runID = uniqueRun(h, fmt.Sprintf("house-%d", h.num))
	start(h, h.c, workflows.RunWorkflowID(h.runID), workflows.TypeRun, `{}`)
	await(h, "step 2", func() bool {
		s, err := workflows.Status(h.Context(), h.c, h.runID)
		return err == nil && s.Step == 1
	})
	return h.runID
}

// end ends the run as a person does.
func (h *house) end() {
	h.Helper()
	id := workflows.RunWorkflowID(h.runID)
	_, err := workflows.Send(h.Context(), h.c, h.runID, workflows.CommandStop, workflows.Command{Now: true})
	h.Logf("run %s ends: %v", h.runID, err)
	await(h, "end of "+id, func() bool { h.healthy(id); return closed(h.c, id)() })
	h.sound(id)
	h.sound(workflows.StageWorkflowID(h.runID, 1, "hop1"))
	h.runID = ""
}

// healthy fails the test when a workflow cannot do its task.
func (h *house) healthy(id string) {
	h.Helper()
	d, err := workflows.Describe(h.Context(), h.c, id, "")
	if err != nil {
		h.Fatalf("describe %s: %v", id, err)
	}
	if n := d.GetPendingWorkflowTask().GetAttempt(); n > 2 {
		h.Fatalf("%s is stuck: %v", id, workflows.Troubles(h.Context(), h.c, id))
	}
}

// sound fails the test when a task of a workflow has ever failed.
func (h *house) sound(id string) {
	h.Helper()
	for _, e := range fetch(h, h.c, id, "").Events {
		if f := e.GetWorkflowTaskFailedEventAttributes(); f != nil && f.Cause != enums.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND {
			h.Errorf("%s, event %d: the task failed: %v %.300s", id, e.EventId, f.Cause, f.GetFailure().GetMessage())
		}
	}
}

func jsonPayload(text string) *common.Payloads {
	return payloads(payload("json/plain", text))
}

func payload(encoding, data string) *common.Payload {
	return &common.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)}
}

func payloads(p ...*common.Payload) *common.Payloads { return &common.Payloads{Payloads: p} }

// junk is what anybody may send. SEAL stands for the seal of the run.
func junk(seal string) map[string]*common.Payloads {
	out := map[string]*common.Payloads{
		"nothing": nil, "no payload": {}, "no metadata": payloads(&common.Payload{Data: []byte("{}")}), "empty": jsonPayload(""),
		"several": payloads(payload("json/plain", `{"reason":5}`), payload("json/plain", `{}`), payload("binary/plain", "x")),
		"binary":  payloads(payload("binary/plain", "\x00\xff{}")), "null": payloads(payload("binary/null", "")),
		"protobuf": payloads(payload("binary/protobuf", "\x0a\x03abc")), "json protobuf": payloads(payload("json/protobuf", `{"a":1}`)),
		"unknown encoding": payloads(payload(strings.Repeat("x", 100_000), "{}")),
	}
	for _, text := range []string{
		`null`, `{}`, `[]`, `"stop"`, `5`, `true`, `-1e999`, `{"reason":`, `{"reason":5}`, `{"now":"yes","reason":["a"]}`, `{"mistyped":1}`,
		`{"set":[1]}`, `{"set":{"a":{"b":[1]}}}`, `{"set":{"rl.optimizer.lr":1e-4},"from_step":1e30}`, `{"set":{"":null},"from_step":-9223372036854775808}`,
		`{"from":{"x":1}}`, `{"from":-1}`, `{"from":"best","run_id":"../../etc/passwd"}`, `{"from":2,"run_id":"` + strings.Repeat("r", 2000) + `"}`,
		`{"stage":"nowhere"}`, `{"stage":null,"now":true}`, "{\"reason\":\"\\ud800 \\u0000 \xff\xfe \u202e\"}", "\xff\xfe{}",
		`{"reason":"` + strings.Repeat("\\u0001", 150_000) + `"}`, `{"` + strings.Repeat("k", 900_000) + `":1}`, `{"now":` + strings.Repeat("9", 900_000) + `}`,
		strings.Repeat(`[`, 200_000), strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000),
		// Between a run and its stage:
		`{"name":"amend"}`, `{"id":1,"name":"amend","seal":"SEAL"}`, `{"id":1,"name":"amend","amendment":{},"seal":"SEAL"}`,
		`{"id":2,"name":"amend","amendment":{"amendment":{"from_step":-5,"set":{"a":"b"}}},"seal":"SEAL"}`, `{"id":0,"name":"checkpoint","seal":"SEAL"}`,
		`{"id":3,"name":"checkpoint","seal":"SEAL"}`, `{"id":4,"name":"","seal":"SEAL"}`, `{"id":"x","seal":"SEAL"}`, `{"id":5,"name":7,"seal":"SEAL"}`,
		`{"id":1,"seal":"SEAL"}`, `{"id":1,"amended":{},"seal":"SEAL"}`, `{"id":1,"amended":{"stages":[{"of":99}]},"seal":"SEAL"}`,
		`{"id":-1,"amended":{"config":{"key":"k"},"stages":[{"index":1,"of":-7},{"index":2}]},"seal":"SEAL"}`,
		`{"paused":1,"seal":"SEAL"}`, `{"paused":true,"since":"yesterday","seal":"SEAL"}`, `{"paused":true,"seal":"SEAL"}`, `{"seal":"SEAL"}`,
		`{"only_alerts":true,"alerts":[null,"x"],"seal":"SEAL"}`, `{"last":{"step":-1e18},"saved":99,"seal":"SEAL"}`,
		`{"stopping":true}`, `{"paused":true}`, `{"id":1,"amended":{"config":{"key":"k"},"stages":[]}}`,
	} {
		out[fmt.Sprintf("%d: %.60q", len(out), text)] = jsonPayload(strings.ReplaceAll(text, "SEAL", seal))
	}
	return out
}

// sample takes every third message, from another one on for each door, so that together
// the doors see all of them.
func (h *house) sample(all map[string]*common.Payloads, from int) map[string]*common.Payloads {
	for i, what := range slices.Sorted(maps.Keys(all)) {
		if !*everyDoor && (i+from)%3 != 0 {
			delete(all, what)
		}
	}
	return all
}

// targets are the workflows of a live run.
func (h *house) targets() (seal string, ids []string) {
	runID := h.live()
	id := workflows.RunWorkflowID(runID)
	d, err := workflows.Describe(h.Context(), h.c, id, "")
	if err != nil {
		h.Fatal(err)
	}
	return d.GetWorkflowExecutionInfo().GetExecution().GetRunId(), []string{id, workflows.StageWorkflowID(runID, 1, "hop1")}
}

func everyName() []string {
	return []string{
		workflows.CommandPause, workflows.CommandResume, workflows.CommandCheckpoint, workflows.CommandAmend, workflows.CommandRepeatStage,
		workflows.CommandSkipStage, workflows.CommandStop, workflows.CommandRestart, "gate", "order", "receipt", "stage_gate", "status", "nonsense",
	}
}

// TestSignalsTakeAnything sends everything to every signal of a run and of its stage.
// No workflow task fails, and the run can still be ended by a command.
func TestSignalsTakeAnything(t *testing.T) {
	h := newHouse(t)
	for i, name := range everyName() {
		for target := range 2 {
			seal, ids := h.targets()
			for what, input := range h.sample(junk(seal), i) {
				_, err := h.c.WorkflowService().SignalWorkflowExecution(t.Context(), &workflowservice.SignalWorkflowExecutionRequest{
					Namespace: client.DefaultNamespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: ids[target]}, SignalName: name, Input: input,
				})
				if err != nil && !closed(h.c, ids[target])() {
					t.Errorf("signal %s with %s: %v", name, what, err)
				}
			}
			h.healthy(ids[0])
			h.healthy(ids[1])
		}
	}
	h.live()
	h.end()
}

// TestUpdatesTakeAnything sends everything to every update, and asks every query with it.
func TestUpdatesTakeAnything(t *testing.T) {
	h := newHouse(t)
	for i, name := range everyName() {
		for target := range 2 {
			seal, ids := h.targets()
			for what, input := range h.sample(junk(seal), i) {
				if err := h.update(ids[target], name, input); errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("update %s of %s with %s: no answer", name, ids[target], what)
				}
				if name == workflows.QueryStatus {
					h.query(ids[target], what, input)
				}
			}
			h.healthy(ids[0])
			h.healthy(ids[1])
		}
	}
	h.live()
	h.end()
}

func (h *house) update(id, name string, input *common.Payloads) error {
	ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
	defer cancel()
	h.num++
	_, err := h.c.WorkflowService().UpdateWorkflowExecution(ctx, &workflowservice.UpdateWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: id},
		WaitPolicy: &updatepb.WaitPolicy{LifecycleStage: enums.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED},
		Request:    &updatepb.Request{Meta: &updatepb.Meta{UpdateId: fmt.Sprint(h.num)}, Input: &updatepb.Input{Name: name, Args: input}},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (h *house) query(id, what string, input *common.Payloads) {
	h.Helper()
	for _, name := range []string{workflows.QueryStatus, "__temporal_workflow_metadata", "__stack_trace", "nonsense"} {
		ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
		_, err := h.c.WorkflowService().QueryWorkflow(ctx, &workflowservice.QueryWorkflowRequest{
			Namespace: client.DefaultNamespace, Execution: &common.WorkflowExecution{WorkflowId: id}, Query: &query.WorkflowQuery{QueryType: name, QueryArgs: input},
		})
		if ctx.Err() != nil {
			h.Errorf("query %s of %s with %s: %v", name, id, what, err)
		}
		cancel()
	}
}

// TestInputsTakeAnything starts every workflow with everything, and with inputs that
// are right but for one value. Each ends by itself or can be cancelled.
func TestInputsTakeAnything(t *testing.T) {
	h := newHouse(t)
	stage, err := json.Marshal(stageInput(h.w, 2))
	if err != nil {
		t.Fatal(err)
	}
	right := map[string]string{
		workflows.TypeRun:      `{"run_id":"x","config":"a.yaml","seed":1,"set":{"a":"b"},"fork":{"run_id":"y","step":2,"from":"best"},"priority":3}`,
		workflows.TypeStage:    string(stage),
		workflows.TypeEvaluate: `{"run_id":"x","version":3,"final":true}`,
		workflows.TypeRetrain:  `{"id":"nightly","config":"/a.yaml","set":{"a":"b"},"data":["new"],"stages":["hop1"],"gate":["accuracy>=0"]}`,
	}
	rng := rand.New(rand.NewPCG(7, 11))
	junk := h.sample(junk("SEAL"), 0)
	var ids []string
	for kind, text := range right {
		inputs := maps.Clone(junk)
		for range *numInputs {
			changed, what := mutate(t, rng, text)
			inputs[what] = jsonPayload(changed)
		}
		for what, input := range inputs {
			ids = append(ids, h.startRaw(kind, what, input))
		}
		for _, id := range ids[len(ids)-len(inputs):] {
			await(t, "first task of "+id, func() bool { return closed(h.c, id)() || len(fetch(t, h.c, id, "").Events) > 4 })
		}
	}
	h.endAll(ids)
}

func (h *house) startRaw(kind, what string, input *common.Payloads) string {
	h.Helper()
	h.num++
	id := uniqueRun(h, fmt.Sprintf("%s-%d", kind, h.num))
	_, err := h.c.WorkflowService().StartWorkflowExecution(h.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowId: id, WorkflowType: &common.WorkflowType{Name: kind}, Input: input, RequestId: id,
		TaskQueue: &taskqueue.TaskQueue{Name: workflows.QueueControl},
	})
	if err != nil {
		h.Fatalf("start %s with %s: %v", kind, what, err)
	}
	h.Logf("%s: %.80q", id, what)
	return id
}

// endAll cancels the workflows and waits for their end.
func (h *house) endAll(ids []string) {
	h.Helper()
	for _, id := range ids {
		if !closed(h.c, id)() {
			h.healthy(id)
			_ = h.c.CancelWorkflow(h.Context(), id, "") // it may have ended just now
		}
	}
	for _, id := range ids {
		await(h, "end of "+id, func() bool { h.healthy(id); return closed(h.c, id)() })
		h.sound(id)
	}
}

// mutate replaces one value of a JSON object by something that may not belong there.
func mutate(t *testing.T, rng *rand.Rand, text string) (changed, what string) {
	t.Helper()
	var tree any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	values := []any{
		nil, -1, 0, 99, 1e18, -1e18, 0.5, "", "x/../y", strings.Repeat("\u00fc", 3000), "\x00\u202e", true, []any{}, []any{nil}, map[string]any{}, map[string]any{"a": nil},
	}
	what = replaceOne(rng, &tree, values[rng.IntN(len(values))])
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), fmt.Sprintf("%.100s", what)
}

// replaceOne walks down to a random place and returns what stands there now.
func replaceOne(rng *rand.Rand, at *any, value any) string {
	object, ok := (*at).(map[string]any)
	if !ok || len(object) == 0 || rng.IntN(8) == 0 {
		*at = value
		return fmt.Sprintf("=%v", value)
	}
	keys := slices.Sorted(maps.Keys(object))
	key := keys[rng.IntN(len(keys))]
	below := object[key]
	what := replaceOne(rng, &below, value)
	object[key] = below
	return "." + key + what
}

// TestInternalSignalsAreNotListed: the web UI offers people what they may send.
func TestInternalSignalsAreNotListed(t *testing.T) {
	h := newHouse(t)
	_, ids := h.targets()
	for i, want := range []int{8, 4} {
		v, err := h.c.QueryWorkflow(t.Context(), ids[i], "", "__temporal_workflow_metadata")
		if err != nil {
			t.Fatal(err)
		}
		var about sdk.WorkflowMetadata
		if err := v.Get(&about); err != nil {
			t.Fatal(err)
		}
		signals, updates := about.GetDefinition().GetSignalDefinitions(), about.GetDefinition().GetUpdateDefinitions()
		if len(signals) != want || len(updates) != want {
			t.Errorf("%s lists the signals %v and the updates %v, want the %d commands", ids[i], signals, updates, want)
		}
	}
	h.end()
}
