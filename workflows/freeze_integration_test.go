//go:build integration

package workflows_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/temporalclient"
	"temper/workflows"
)

// watchPauses watches what the server has paused, as a control role does, until the
// returned function is called.
func watchPauses(t *testing.T, c client.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { temporalclient.NewWatch(c, slog.New(slog.DiscardHandler)).Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// press presses the button of the web UI: its request is this one.
func press(t *testing.T, c client.Client, id string, pause bool) {
	t.Helper()
	var err error
	if pause {
		_, err = c.WorkflowService().PauseWorkflowExecution(t.Context(), &workflowservice.PauseWorkflowExecutionRequest{
			Namespace: "default", WorkflowId: id, Identity: "ann@ui", Reason: "look",
		})
	} else {
		_, err = c.WorkflowService().UnpauseWorkflowExecution(t.Context(), &workflowservice.UnpauseWorkflowExecutionRequest{
			Namespace: "default", WorkflowId: id, Identity: "ann@ui",
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPauseButtonPausesTheRun presses the server's own button on a run and on its
// stage. Each time no further step is made, status, list and commands say who did it,
// and all goes on afterwards, also where the watcher died meanwhile.
func TestPauseButtonPausesTheRun(t *testing.T) {
	c := dialServer(t)
	w := newWorld(1000)
	w.hold = 20 * time.Millisecond
	w.plan.SFTSteps = 0
	defer serve(t, c, w)()
	id := uniqueRun(t, "button")
	flow := start(t, c, workflows.RunWorkflowID(id), workflows.TypeRun, `{"config": "configs/demo.yaml"}`)
	stage := workflows.StageWorkflowID(id, 1, "hop1")
	b := button{T: t, c: c, w: w, run: id}
	ended := make(chan error, 1)
	go func() { ended <- workflows.AwaitEnd(context.WithoutCancel(t.Context()), c, flow.GetID(), nil) }()
	stop := watchPauses(t, c)
	b.awaitSteps(2)
	for _, target := range []string{flow.GetID(), stage} {
		press(t, c, target, true)
		b.checkFrozen(target)
		press(t, c, target, false)
		b.awaitSteps(2)
		b.awaitState(workflows.StateTraining)
	}

	press(t, c, flow.GetID(), true)
	b.awaitState(workflows.StatePaused)
	stop() // killed; nobody takes back what it told the stage
	press(t, c, flow.GetID(), false)
	stop = watchPauses(t, c)
	defer func() { stop() }()
	b.awaitSteps(2)

	press(t, c, stage, true)
	b.awaitState(workflows.StatePaused)
	lifted, err := temporalclient.Lift(t.Context(), c, "default", id, "ben", "looked")
	if err != nil || len(lifted) != 1 || lifted[0].Workflow != stage {
		t.Errorf("lifted %v (%v), want the pause of the stage", lifted, err)
	}
	b.awaitSteps(2)
	b.awaitState(workflows.StateTraining)
	select {
	case err := <-ended:
		t.Errorf("the wait for the end is over before it: %v", err)
	default:
	}
	if _, err := workflows.Send(t.Context(), c, id, workflows.CommandStop, workflows.Command{}); err != nil {
		t.Error(err)
	}
	await(t, "the end", closed(c, flow.GetID()))
	checkEachStepOnce(t, w, w.count("train"))
}

// button watches one run.
type button struct {
	*testing.T
	c   client.Client
	w   *world
	run string
}

func (b button) awaitSteps(n int) {
	b.Helper()
	made := b.w.count("log")
	await(b, "further steps", func() bool { return b.w.count("log") >= made+n })
}

func (b button) awaitState(want workflows.State) (s workflows.RunStatus) {
	b.Helper()
	await(b, "state "+string(want), func() (ok bool) {
		got, err := workflows.Status(b.Context(), b.c, b.run)
		s = got
		return err == nil && s.State == want
	})
	return s
}

// checkFrozen waits until the run is paused and looks at it from all sides.
func (b button) checkFrozen(target string) {
	b.Helper()
	got := b.awaitState(workflows.StatePaused)
	made := b.w.count("")
	if got.By != "ann@ui" || got.Since == nil || time.Since(*got.Since) > time.Minute || !strings.Contains(got.Reason, target+" is paused on the server: look") {
		b.Errorf("status %+v, want paused by ann@ui for a look", got)
	}
	if got.Child != workflows.StageWorkflowID(b.run, 1, "hop1") || got.NumSteps != 1000 {
		b.Errorf("status %+v lacks stage or steps", got)
	}
	_, err := workflows.Send(b.Context(), b.c, b.run, workflows.CommandAmend, workflows.Command{Set: map[string]string{"rl.optimizer.lr": "0.1"}})
	if err == nil || !strings.Contains(err.Error(), "ann@ui") || !strings.Contains(err.Error(), "temper run resume "+b.run) {
		b.Errorf("a command to a frozen run: %v, want who froze it and the way out", err)
	}
	open, err := workflows.OpenRuns(b.Context(), b.c)
	if err != nil || len(open) == 0 {
		b.Errorf("open runs %v (%v), want this one", open, err)
	}
	for _, run := range open {
		if run.RunID == workflows.RunIDFromWorkflowID(b.run) && target == workflows.RunWorkflowID(b.run) && (run.State != workflows.StatePaused || run.Frozen == nil || run.Frozen.By != "ann@ui") {
			b.Errorf("the list has %+v, want paused by ann@ui", run)
		}
	}
	time.Sleep(time.Second) // far longer than a step
	if now := b.w.count(""); now > made {
		b.Errorf("%d calls while the run is frozen: %v", now-made, b.w.log()[made:])
	}
}

// playFrozen presses the button on the run in step 1 and on its stage in step 2.
func playFrozen(r recorder, id string) {
	r.w.hold = 500 * time.Millisecond
	stop := watchPauses(r.T, r.c)
	defer stop()
	flow := r.start(id)
	for step, target := range []string{flow.GetID(), workflows.StageWorkflowID(id, 1, "hop1")} {
		await(r, "a step", func() bool { return r.w.count(fmt.Sprintf("train %d", step+1)) > 0 })
		press(r.T, r.c, target, true)
		r.awaitState(id, workflows.StatePaused)
		press(r.T, r.c, target, false)
	}
	r.awaitClosed(flow)
	r.keep("frozen-run", workflows.RunWorkflowID(id))
	r.keep("frozen-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}
