//go:build integration

package workflows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

var update = flag.Bool("update", false, "write the recorded histories to testdata/histories")

// recorder runs scenarios on a real server and keeps their histories.
type recorder struct {
	*testing.T
	c client.Client
	w *world
}

// TestHistories plays every shape of a run against a real server, checks what
// came out and that the recorded history replays. With -update the histories
// become the fixtures of TestReplay.
func TestHistories(t *testing.T) {
	c := dialServer(t)
	for name, play := range map[string]func(recorder, string){
		"whole": playWhole, "paused": playPaused, "retried": playRetried,
		"stopped": playStopped, "cancelled": playCancelled, "refused": playRefused, "continued": playContinued,
		"steered": playSteered, "forked": playForked, "restarted": playRestarted,
		"frozen": playFrozen, "outage": playOutage, "disturbed": playDisturbed,
		"shown": playShown, "misspelled": playMisspelled,
		"windowed": playWindowed, "window-continued": playWindowContinued, "judged": playJudged,
		"spanned": playSpanned, "interrupted": playInterrupted,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, 1)
			stop := serve(t, c, w)
			defer stop()
			play(recorder{T: t, c: c, w: w}, uniqueRun(t, name))
		})
	}
}

func playWhole(r recorder, id string) {
	r.w.plan.Stages[1].Filter = true
	r.w.plan.SearchAttributes = r.ensureAttributes()
	r.w.plan.ProgressAttributes = true
	r.run(id)
	if got := r.w.finish[0].Policy.Version; got != 3 {
		r.Errorf("policy %d, want 3", got)
	}
	r.keep("whole-run", workflows.RunWorkflowID(id))
	r.keep("whole-stage", workflows.StageWorkflowID(id, 2, "hop2"))
	events := eventNames(r.keep("whole-steps", workflows.StageWorkflowID(id, 1, "hop1")))
	first := slices.Index(events, stepEvents[0])
	next := first + 1 + slices.Index(events[first+1:], stepEvents[0])
	if diff := cmp.Diff(stepEvents, events[first:next]); diff != "" {
		r.Errorf("events of a step (-want +got):\n%s", diff)
	}
}

// stepEvents are the events of a step in its stage: two activities with a hop each,
// all other work inside the workflow tasks between them.
var stepEvents = []string{
	"MarkerRecorded SelectProblems",
	"ActivityTaskScheduled SampleGroups", "ActivityTaskStarted", "ActivityTaskCompleted",
	"WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
	"MarkerRecorded BuildBatch",
	"ActivityTaskScheduled TrainStep", "ActivityTaskStarted", "ActivityTaskCompleted",
	"WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
	"MarkerRecorded LogStep",
}

// playPaused pauses the run by update and resumes it by signals without a
// payload, then pauses and resumes the stage itself.
func playPaused(r recorder, id string) {
	r.w.hold = 50 * time.Millisecond
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 4, 5
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	if _, err := workflows.Send(r.Context(), r.c, id, workflows.CommandPause, workflows.Command{Reason: "lunch"}); err != nil {
		r.Fatal(err)
	}
	r.awaitState(id, workflows.StatePaused)
	if s := r.status(id); s.Reason != "lunch" || s.Step == 0 {
		r.Errorf("status %+v, want paused for lunch after a step", s)
	}
	if _, err := workflows.Send(r.Context(), r.c, id, workflows.CommandPause, workflows.Command{}); err == nil {
		r.Error("a second pause was accepted")
	}
	r.signal(workflows.RunWorkflowID(id), workflows.CommandResume, nil)
	r.awaitState(id, workflows.StateTraining)
	stage := r.status(id).Child
	r.signal(stage, workflows.CommandPause, struct{}{})
	r.awaitState(id, workflows.StatePaused)
	r.signal(stage, workflows.CommandResume, nil)
	r.awaitClosed(flow)
	if got := r.w.finish[0].Policy.Version; got != 5 {
		r.Errorf("policy %d, want 5", got)
	}
	r.keep("paused-run", workflows.RunWorkflowID(id))
	r.keep("paused-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

func playRetried(r recorder, id string) {
	for _, call := range []string{"sample 1 with 0: p1,p2,p3", "batch 1", "train 1", "sft 0-25"} {
		r.w.faults[call] = []error{infraError(), infraError()}
	}
	r.run(id)
	r.keep("retried-run", workflows.RunWorkflowID(id))
	r.keep("retried-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

func playStopped(r recorder, id string) {
	r.w.hold = 50 * time.Millisecond
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	if _, err := workflows.Send(r.Context(), r.c, id, workflows.CommandStop, workflows.Command{Reason: "good enough"}); err != nil {
		r.Fatal(err)
	}
	r.awaitClosed(flow)
	if !r.w.finish[0].Stopped {
		r.Error("finished as if it had not been stopped")
	}
	r.keep("stopped-run", workflows.RunWorkflowID(id))
	r.keep("stopped-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

func playCancelled(r recorder, id string) {
	r.w.hold = 300 * time.Millisecond
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("sample 1") > 0 })
	if err := r.c.CancelWorkflow(r.Context(), flow.GetID(), ""); err != nil {
		r.Fatal(err)
	}
	r.awaitClosed(flow)
	d, err := workflows.Describe(r.Context(), r.c, flow.GetID(), "")
	if err != nil {
		r.Fatal(err)
	}
	if got := d.WorkflowExecutionInfo.Status; got != enums.WORKFLOW_EXECUTION_STATUS_CANCELED {
		r.Errorf("status %v, want canceled", got)
	}
	if len(r.w.finish) != 1 {
		r.Errorf("%d summaries, want 1", len(r.w.finish))
	}
	r.keep("cancelled-run", workflows.RunWorkflowID(id))
	r.keep("cancelled-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

// playRefused: a wrong configuration fails at once with its message.
func playRefused(r recorder, id string) {
	r.w.faults["open"] = []error{finalError(string(fault.InvalidConfig), "rl.group_size: 32 is above 16")}
	flow := r.start(id)
	err := flow.Get(r.Context(), nil)
	if err == nil || !cmp.Equal(r.w.count("open"), 1) {
		r.Errorf("error %v after %d attempts, want one failed attempt", err, r.w.count("open"))
	}
	r.keep("refused-run", workflows.RunWorkflowID(id))
}

// playContinued runs a stage alone, whose executions hold one step each.
func playContinued(r recorder, id string) {
	in := stageInput(r.w, 1)
	in.Run.RunID = id
	stage := workflows.StageWorkflowID(id, 1, "hop1")
	data, err := json.Marshal(in)
	if err != nil {
		r.Fatal(err)
	}
	if err := startStage(r, r.c, stage, string(data)).Get(r.Context(), nil); err != nil {
		r.Fatal(err)
	}
	d, err := workflows.Describe(r.Context(), r.c, stage, "")
	if err != nil {
		r.Fatal(err)
	}
	firstRun := d.WorkflowExecutionInfo.FirstRunId
	h := r.keepExecution("continued-stage-1", stage, firstRun)
	if last := h.Events[len(h.Events)-1].EventType; last != enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
		r.Errorf("first execution ended by %v", last)
	}
	r.keep("continued-stage-2", stage)
}

// playSteered gives every command that is not shown elsewhere.
func playSteered(r recorder, id string) {
	r.w.hold = 500 * time.Millisecond
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 4, 5
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	r.send(id, workflows.CommandPause, workflows.Command{Now: true, Reason: "look", By: "ann"})
	r.awaitState(id, workflows.StatePaused)
	r.send(id, workflows.CommandCheckpoint, workflows.Command{})
	r.send(id, workflows.CommandAmend, workflows.Command{Set: run.Settings{"rl.optimizer.lr": "1e-5"}, Reason: "too fast"})
	r.send(id, workflows.CommandSkipStage, workflows.Command{Stage: "hop2", Reason: "not needed"})
	r.send(id, workflows.CommandRepeatStage, workflows.Command{Stage: "hop1"})
	r.send(id, workflows.CommandResume, workflows.Command{})
	await(r, "step 2", func() bool { return r.w.count("train 2") > 0 })
	r.send(id, workflows.CommandSkipStage, workflows.Command{Reason: "solved"})
	r.awaitClosed(flow)
	if in := r.w.finish[0]; len(in.Stages) != 3 || len(r.w.amends) != 2 || len(r.w.skips) != 2 {
		r.Errorf("%d stages, amendments %+v, skips %+v", len(in.Stages), r.w.amends, r.w.skips)
	}
	r.keep("steered-run", workflows.RunWorkflowID(id))
	r.keep("steered-stage", workflows.StageWorkflowID(id, 1, "hop1"))
	r.keep("steered-repeated", workflows.StageWorkflowID(id, 3, "hop1.2"))
}

// playOutage has the store away for longer than control work is tried within a
// workflow task.
func playOutage(r recorder, id string) {
	for range workflows.LocalAttempts + 1 {
		r.w.faults["batch 1"] = append(r.w.faults["batch 1"], infraError())
	}
	r.run(id)
	r.keep("outage-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

// playDisturbed sends what no run takes, from people and from strangers.
func playDisturbed(r recorder, id string) {
	r.w.hold = time.Second
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	stage := workflows.StageWorkflowID(id, 1, "hop1")
	for name, to := range map[string]string{"order": stage, "gate": stage, "receipt": workflows.RunWorkflowID(id), "stage_gate": workflows.RunWorkflowID(id)} {
		r.signal(to, name, map[string]any{"id": 1, "name": "amend", "paused": true})
	}
	r.signal(workflows.RunWorkflowID(id), workflows.CommandPause, map[string]any{"reason": 5})
	r.signal(stage, workflows.CommandStop, []string{"now"})
	r.send(id, workflows.CommandAmend, workflows.Command{Set: run.Settings{"rl.optimizer.lr": "1e-5"}})
	r.awaitClosed(flow)
	ignored := 0
	for _, e := range r.w.events {
		if strings.HasPrefix(e, "ignored: ") {
			ignored++
		}
	}
	if ignored != 6 || len(r.w.amends) != 1 || len(r.w.trains) != 3 {
		r.Errorf("%d signals ignored, want 6; %d amendments, %d steps; events %q", ignored, len(r.w.amends), len(r.w.trains), r.w.events)
	}
	r.keep("disturbed-run", workflows.RunWorkflowID(id))
	r.keep("disturbed-stage", stage)
}

func playForked(r recorder, id string) {
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 4, 5
	r.w.plan.Fork = &run.ForkPlan{RunID: "parent", Step: 1, Made: []int{1, 0}, Skips: []run.Skip{{Stage: 1, After: 3, Why: "skipped"}}}
	r.run(id)
	if got := r.w.count("train"); got != 3 {
		r.Errorf("%d steps, want 2, 3 and 5", got)
	}
	r.keep("forked-run", workflows.RunWorkflowID(id))
	r.keep("forked-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

func playRestarted(r recorder, id string) {
	r.w.hold = 100 * time.Millisecond
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	r.w.mu.Lock()
	r.w.plan.Fork = &run.ForkPlan{RunID: id, Step: 2} // for the other run
	r.w.mu.Unlock()
	r.send(id, workflows.CommandRestart, workflows.Command{From: "2", RunID: id + "-on", Reason: "collapse"})
	r.awaitClosed(flow)
	await(r, "end of the other run", closed(r.c, workflows.RunWorkflowID(id+"-on")))
	if got := r.w.finish[0].Restarted; got != id+"-on" {
		r.Errorf("restarted as %q", got)
	}
	r.keep("restarted-run", workflows.RunWorkflowID(id))
}

// playShown: the list of runs shows a stop before the step in flight has ended.
func playShown(r recorder, id string) {
	r.w.hold = 2 * time.Second
	r.w.plan.SearchAttributes = r.ensureAttributes()
	r.w.plan.ProgressAttributes = true
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("sample 1") > 0 })
	r.send(id, workflows.CommandStop, workflows.Command{Reason: "enough"})
	await(r, "stop in the list", func() bool {
		open, err := workflows.OpenRuns(r.Context(), r.c)
		return err == nil && slices.Contains(open, workflows.OpenRun{RunID: id, Workflow: workflows.RunWorkflowID(id), State: workflows.StateStopping, Stage: "hop1"})
	})
	if r.w.count("log 1") > 0 {
		r.Error("the stop is shown when the step has ended")
	}
	r.awaitClosed(flow)
	r.keep("shown-run", workflows.RunWorkflowID(id))
}

// playMisspelled: an input with an unknown key is refused before anything is done.
func playMisspelled(r recorder, id string) {
	flow := start(r, r.c, workflows.RunWorkflowID(id), workflows.TypeRun, `{"confg": "configs/demo.yaml"}`)
	if err := flow.Get(r.Context(), nil); err == nil || r.w.count("open") > 0 {
		r.Errorf("error %v after %d openings, want a refusal", err, r.w.count("open"))
	}
	r.keep("misspelled-run", workflows.RunWorkflowID(id))
}

func (r recorder) send(id, command string, arg workflows.Command) {
	r.Helper()
	if _, err := workflows.Send(r.Context(), r.c, id, command, arg); err != nil {
		r.Fatal(err)
	}
}

func (r recorder) ensureAttributes() bool {
	known, err := temporalclient.EnsureAttributes(r.Context(), r.c, client.DefaultNamespace, workflows.SearchAttributes())
	if err != nil || !known {
		r.Fatalf("search attributes: known %v, %v", known, err)
	}
	return known
}

func (r recorder) start(id string) client.WorkflowRun {
	r.Helper()
	return start(r, r.c, workflows.RunWorkflowID(id), "RLRun", `{"config": "configs/demo.yaml", "seed": 1}`)
}

func (r recorder) run(id string) {
	r.Helper()
	r.awaitClosed(r.start(id))
}

func (r recorder) awaitClosed(flow client.WorkflowRun) {
	r.Helper()
	await(r, "end of "+flow.GetID(), closed(r.c, flow.GetID()))
}

func (r recorder) status(id string) workflows.RunStatus {
	r.Helper()
	s, err := workflows.Status(r.Context(), r.c, id)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func (r recorder) awaitState(id string, want workflows.State) {
	r.Helper()
	await(r, "state "+string(want), func() bool { return r.status(id).State == want })
}

func (r recorder) signal(workflowID, name string, arg any) {
	r.Helper()
	if err := r.c.SignalWorkflow(r.Context(), workflowID, "", name, arg); err != nil {
		r.Fatal(err)
	}
}

func (r recorder) keep(name, workflowID string) *history.History {
	r.Helper()
	return r.keepExecution(name, workflowID, "")
}

// keepExecution fetches a history, replays it and with -update stores it.
func (r recorder) keepExecution(name, workflowID, runID string) *history.History {
	r.Helper()
	h := fetch(r, r.c, workflowID, runID)
	if err := replayHistory(r, h, workflows.Interceptors()); err != nil {
		r.Errorf("replay %s: %v", name, err)
	}
	if *update {
		r.store(name, h)
	}
	return h
}

// store writes a fixture without the name of the machine it was made on, which
// the SDK puts into the names of its sticky queues.
func (r recorder) store(name string, h *history.History) {
	r.Helper()
	host, err := os.Hostname()
	if err != nil {
		r.Fatal(err)
	}
	data, err := protojson.Marshal(h)
	if err != nil {
		r.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte(`"`+host+":"), []byte(`"worker:`))
	if err := os.WriteFile(filepath.Join("testdata", "histories", name+".json"), append(data, '\n'), 0o600); err != nil {
		r.Fatal(err)
	}
}

func fetch(t testing.TB, c client.Client, workflowID, runID string) *history.History {
	t.Helper()
	h := &history.History{}
	events := c.GetWorkflowHistory(context.Background(), workflowID, runID, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	return h
}

func eventNames(h *history.History) []string {
	var names []string
	for _, e := range h.Events {
		name := e.EventType.String()
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			name += " " + a.ActivityType.Name
		}
		if m := e.GetMarkerRecordedEventAttributes(); m != nil {
			var marker struct{ ActivityType string }
			if data := m.Details["data"].GetPayloads(); len(data) > 0 { // none for a version
				_ = json.Unmarshal(data[0].Data, &marker) // no name shows as a difference
			}
			name += " " + marker.ActivityType
		}
		names = append(names, name)
	}
	return names
}

// TestRunSurvivesTheRestartOfItsWorkers drains every worker in the middle of a
// sampling that would outlast the drain, starts them again and expects the run
// to go on well before a heartbeat time-out.
func TestRunSurvivesTheRestartOfItsWorkers(t *testing.T) {
	c := dialServer(t)
	w := newWorld(1)
	w.hold = 3 * time.Second
	r := recorder{T: t, c: c, w: w}
	stop := serve(t, c, w)
	id := uniqueRun(t, "restarted")
	flow := r.start(id)
	await(t, "sampling", func() bool { return w.count("sample 1") > 0 })
	stop()
	w.hold = 0
	began := time.Now()
	defer serve(t, c, w)()
	r.awaitClosed(flow)
	t.Logf("closed %v after the restart", time.Since(began).Round(time.Millisecond))
	if got := w.count("sample 1"); got != 2 {
		t.Errorf("%d attempts of the sampling, want 2", got)
	}
	if len(w.finish) != 1 || w.finish[0].Policy.Version != 1 {
		t.Errorf("finish: %+v", w.finish)
	}
}

// BenchmarkStep measures the orchestration of a step alone: a stage of b.N
// steps whose activities do nothing, on a real server.
func BenchmarkStep(b *testing.B) {
	c := dialServer(b)
	w := newWorld(b.N)
	stop := serve(b, c, w)
	defer stop()
	in := stageInput(w, workflows.StepsPerExecution)
	in.Run.RunID = fmt.Sprintf("bench-%d", time.Now().UnixNano())
	data, err := json.Marshal(in)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	flow := startStage(b, c, workflows.StageWorkflowID(in.Run.RunID, 1, "hop1"), string(data))
	if err := flow.Get(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
}
