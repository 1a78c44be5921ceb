//go:build integration

package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"temper/internal/run"
	"temper/workflows"
)

// TestRunsComeInTheOrderOfTheirPriority queues work of several runs for one trainer,
// before it is there, and sees in which order it is handed out: what a run itself
// asks for, and what the steps of a stage do, two workflows below it.
func TestRunsComeInTheOrderOfTheirPriority(t *testing.T) {
	c := dialServer(t)
	w := newWorld(1)
	w.plan.SFTSteps = 10
	defer serveDevicesButTrainer(t, c, w)()
	defer startWorker(t, controlWorker(c, w))()

	priorities := []int{4, 2, 0, 5, 1} // in the order of their coming; 0 is 3
	var runs, stages []string
	for _, p := range priorities {
		id := uniqueRun(t, fmt.Sprintf("priority-%d", p))
		if _, err := workflows.Start(t.Context(), c, run.Input{RunID: id, Priority: p, Config: json.RawMessage(`"x"`)}); err != nil {
			t.Fatal(err)
		}
		await(t, "the queue has "+id, waits(c, workflows.RunWorkflowID(id)))
		runs = append(runs, id)

		in := stageInput(w, 1)
		in.Run.RunID, in.Priority = uniqueRun(t, fmt.Sprintf("stage-%d", p)), p
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		startStage(t, c, workflows.StageWorkflowID(in.Run.RunID, 1, "hop1"), string(data))
		await(t, "the queue has "+in.Run.RunID, waits(c, workflows.StageWorkflowID(in.Run.RunID, 1, "hop1")))
		stages = append(stages, in.Run.RunID)
	}

	quiet := worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 1, MaxConcurrentActivityTaskPollers: 1}
	trainer := worker.New(c, workflows.QueueTrainer, quiet)
	trainer.RegisterActivity(&fakeTrainer{w})
	defer startWorker(t, trainer)()
	await(t, "the trainer has made everything", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.sft) == len(runs) && len(stepsOf(w, stages)) == len(stages)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var gotRuns []string
	for _, in := range w.sft {
		gotRuns = append(gotRuns, in.Run.RunID)
	}
	if want := byPriority(runs, priorities); !slices.Equal(gotRuns, want) {
		t.Errorf("supervised updates of %q, want %q", gotRuns, want)
	}
	if want := byPriority(stages, priorities); !slices.Equal(stepsOf(w, stages), want) {
		t.Errorf("steps of %q, want %q", stepsOf(w, stages), want)
	}
}

// stepsOf is which of the stages' steps were trained, in their order. Those of the
// runs, which come when their supervised updates are made, are left out.
func stepsOf(w *world, stages []string) []string {
	var out []string
	for _, in := range w.trains {
		if slices.Contains(stages, in.Run.RunID) {
			out = append(out, in.Run.RunID)
		}
	}
	return out
}

// byPriority orders ids by their priorities, which differ.
func byPriority(ids []string, priorities []int) []string {
	out := slices.Clone(ids)
	rank := func(id string) int {
		p := priorities[slices.Index(ids, id)]
		if p == 0 {
			return 3
		}
		return p
	}
	slices.SortFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

// waits reports whether a workflow has an activity in the trainer's queue.
func waits(c client.Client, id string) func() bool {
	return func() bool {
		d, err := workflows.Describe(context.Background(), c, id, "")
		if err != nil {
			return false
		}
		for _, a := range d.GetPendingActivities() {
			kind := a.GetActivityType().GetName()
			if (kind == "TrainSFT" || kind == "TrainStep") && a.GetState() == enums.PENDING_ACTIVITY_STATE_SCHEDULED {
				return true
			}
		}
		return false
	}
}

func controlWorker(c client.Client, w *world) worker.Worker {
	control := worker.New(c, workflows.QueueControl, worker.Options{MaxConcurrentWorkflowTaskPollers: 4, WorkerStopTimeout: time.Second})
	registerAll(control)
	control.RegisterActivity(&fakeControl{w})
	return control
}

func serveDevicesButTrainer(t *testing.T, c client.Client, w *world) (stop func()) {
	t.Helper()
	rollout := worker.New(c, workflows.QueueRollout, worker.Options{DisableWorkflowWorker: true, WorkerStopTimeout: time.Second})
	rollout.RegisterActivity(&fakeRollouts{w})
	return startWorker(t, rollout)
}
