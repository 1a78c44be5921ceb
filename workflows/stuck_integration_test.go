//go:build integration

package workflows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"temper/internal/run"
	"temper/workflows"
)

// serveOther runs control workers of a build in which one workflow does something else.
func (h *house) serveOther(name string, does any) (stop func()) {
	h.Helper()
	control := worker.New(h.c, workflows.QueueControl, worker.Options{Interceptors: workflows.Interceptors(), StickyScheduleToStartTimeout: time.Second})
	for _, known := range []struct {
		name string
		does any
	}{{workflows.TypeRun, workflows.RLRun}, {workflows.TypeStage, workflows.RLStage}} {
		if known.name == name {
			known.does = does
		}
		control.RegisterWorkflowWithOptions(known.does, workflow.RegisterOptions{Name: known.name})
	}
	control.RegisterActivity(&fakeControl{h.w})
	return startWorker(h.T, control)
}

var brief = workflows.Patience{Answer: 5 * time.Second, End: 20 * time.Second, Cancel: 2 * time.Second}

// TestStuckRunIsSeenAndEnds: a build that cannot go on with a workflow says so wherever a
// person looks, a command does not wait for it, and stop --now ends the run.
func TestStuckRunIsSeenAndEnds(t *testing.T) {
	for name, play := range map[string]struct {
		breaks   string
		does     any
		says     string
		answered bool // the run itself answers
	}{
		"the stage does not replay": {workflows.TypeStage, func(ctx workflow.Context, _ workflows.StageInput) error {
			return workflow.Sleep(ctx, time.Hour)
		}, "this build does not replay what the run has done", true},
		"the run panics": {workflows.TypeRun, func(workflow.Context, run.Input) error { panic("out of luck") }, "out of luck", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			runID := h.live()
			id, stage := workflows.RunWorkflowID(runID), workflows.StageWorkflowID(runID, 1, "hop1")
			h.stop()
			defer h.serveOther(play.breaks, play.does)()
			for _, to := range []string{id, stage} {
				if err := h.c.SignalWorkflow(t.Context(), to, "", workflows.CommandPause, workflows.Command{}); err != nil {
					t.Fatal(err)
				}
			}
			var status workflows.RunStatus
			await(t, "a status that says so", func() bool {
				status, _ = workflows.Status(t.Context(), h.c, runID) // while it is not known yet, nobody may answer
				return status.State == workflows.StateStuck
			})
			if len(status.Alerts) == 0 || !strings.Contains(status.Alerts[0], play.says) || !strings.Contains(status.Alerts[0], "attempt") {
				t.Errorf("the status says %q, want %q", status.Alerts, play.says)
			}
			open := []workflows.OpenRun{{RunID: runID, Workflow: id}}
			workflows.MarkStuck(t.Context(), h.c, open)
			if open[0].State != workflows.StateStuck || !strings.Contains(open[0].Trouble, play.says) {
				t.Errorf("the list says %+v", open[0])
			}
			if _, err := workflows.Send(t.Context(), h.c, runID, workflows.CommandCheckpoint, workflows.Command{}); !errors.Is(err, workflows.ErrStuck) {
				t.Errorf("a command to a stuck run: %v", err)
			}
			var said []string
			stopped, err := workflows.StopNow(t.Context(), h.c, runID, workflows.Command{Reason: "enough", By: "ann"}, brief, func(s string) { said = append(said, s) })
			if err != nil || !strings.Contains(stopped.Forced, play.says) || (stopped.Answer != "") != play.answered || len(said) != 1 {
				t.Errorf("stopped %+v, %v, said %q", stopped, err, said)
			}
			for _, of := range []string{id, stage} {
				d, err := workflows.Describe(t.Context(), h.c, of, "")
				if err != nil || d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_TERMINATED {
					t.Errorf("%s: %v, %v", of, d.GetWorkflowExecutionInfo().GetStatus(), err)
				}
			}
			events := fetch(t, h.c, id, "").Events
			if why := events[len(events)-1].GetWorkflowExecutionTerminatedEventAttributes().GetReason(); !strings.Contains(why, "enough (by ann)") {
				t.Errorf("terminated for %q", why)
			}
		})
	}
}

// TestStopNowOfARunThatListens ends it by its own means.
func TestStopNowOfARunThatListens(t *testing.T) {
	h := newHouse(t)
	runID := h.live()
	silent := func(text string) { t.Errorf("said %q", text) }
	stopped, err := workflows.StopNow(t.Context(), h.c, runID, workflows.Command{Reason: "enough"}, brief, silent)
	if err != nil || stopped.Forced != "" || !strings.Contains(stopped.Answer, "ends now") {
		t.Errorf("stopped %+v, %v", stopped, err)
	}
	h.sound(workflows.RunWorkflowID(runID))
	if _, err := workflows.StopNow(t.Context(), h.c, runID, workflows.Command{}, brief, silent); err == nil {
		t.Error("a run that has ended can be stopped")
	}
}

// TestStopNowWithoutWorkers ends a run for which no process works.
func TestStopNowWithoutWorkers(t *testing.T) {
	h := newHouse(t)
	runID := h.live()
	h.stop()
	short := workflows.Patience{Answer: time.Second, End: time.Second, Cancel: time.Second}
	stopped, err := workflows.StopNow(t.Context(), h.c, runID, workflows.Command{}, short, func(string) {})
	if err != nil || !strings.Contains(stopped.Forced, "has not answered within 1s") {
		t.Errorf("stopped %+v, %v", stopped, err)
	}
	for _, id := range []string{workflows.RunWorkflowID(runID), workflows.StageWorkflowID(runID, 1, "hop1")} {
		if !closed(h.c, id)() {
			t.Errorf("%s goes on", id)
		}
	}
}
