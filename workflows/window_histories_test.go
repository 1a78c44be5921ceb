//go:build integration

package workflows_test

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/api/enums/v1"

	"temper/internal/run"
	"temper/workflows"
)

// playWindowed interrupts a stage that samples ahead, and amends it.
func playWindowed(r recorder, id string) {
	r.w.hold = 300 * time.Millisecond
	r.w.plan.Window = 2
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 6, 7
	flow := r.start(id)
	await(r, "step 1", func() bool { return r.w.count("train 1") > 0 })
	r.send(id, workflows.CommandPause, workflows.Command{Now: true, Reason: "look", By: "ann"})
	r.awaitState(id, workflows.StatePaused)
	r.send(id, workflows.CommandAmend, workflows.Command{Set: run.Settings{"rl.optimizer.lr": "1e-5"}})
	r.send(id, workflows.CommandResume, workflows.Command{})
	await(r, "step 3", func() bool { return r.w.count("train 3") > 0 })
	r.send(id, workflows.CommandPause, workflows.Command{})
	r.awaitState(id, workflows.StatePaused)
	r.send(id, workflows.CommandResume, workflows.Command{})
	await(r, "step 4", func() bool { return r.w.count("train 4") > 0 })
	r.send(id, workflows.CommandSkipStage, workflows.Command{Reason: "solved"})
	r.awaitClosed(flow)
	if got := slices.Compact(samplers(r.w)); !slices.Contains(got, "sample 4 with 1") || slices.Contains(got, "sample 4 with 2") || len(r.w.amends) != 1 || r.w.amends[0].Amendment.FromStep != 4 {
		r.Errorf("samplers %q, amendments %+v", got, r.w.amends)
	}
	r.keep("windowed-run", workflows.RunWorkflowID(id))
	r.keep("windowed-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

// playWindowContinued runs a stage alone, whose executions hold two steps each and hand
// over what they have sampled ahead.
func playWindowContinued(r recorder, id string) {
	r.w.plan.Stages[0].Steps = 4
	in := stageInput(r.w, 2)
	in.Run.RunID, in.Window, in.Progress.Policy = id, 1, policyAt(0)
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
	h := r.keepExecution("windowed-continued-1", stage, d.WorkflowExecutionInfo.FirstRunId)
	if last := h.Events[len(h.Events)-1].EventType; last != enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
		r.Errorf("first execution ended by %v", last)
	}
	r.keep("windowed-continued-2", stage)
	want := []string{"sample 1 with 0", "sample 2 with 0", "sample 3 with 1", "sample 4 with 2"}
	if diff := cmp.Diff(want, samplers(r.w)); diff != "" {
		r.Errorf("samplers (-want +got):\n%s", diff)
	}
}

// playSpanned interrupts a stage whose trajectories have spans of several policies.
func playSpanned(r recorder, id string) {
	r.w.hold = 100 * time.Millisecond
	r.w.plan.Window, r.w.plan.PartialTokens = 2, 10
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 5, 6
	flow := r.start(id)
	await(r, "step 2", func() bool { return r.w.count("train 2") > 0 })
	r.send(id, workflows.CommandPause, workflows.Command{Now: true})
	r.awaitState(id, workflows.StatePaused)
	r.send(id, workflows.CommandResume, workflows.Command{})
	r.awaitClosed(flow)
	if diff := cmp.Diff(spanned(), r.w.asked()); diff != "" {
		r.Errorf("spans (-want +got):\n%s", diff)
	}
	r.keep("spanned-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}

// playInterrupted amends a run whose step was interrupted.
func playInterrupted(r recorder, id string) {
	r.w.hold = 300 * time.Millisecond
	r.w.plan.Stages[0].Steps, r.w.plan.Stages[1].FirstStep = 3, 4
	flow := r.start(id)
	await(r, "step 2", func() bool { return r.w.count("sample 2") > 0 })
	r.send(id, workflows.CommandPause, workflows.Command{Now: true})
	r.awaitState(id, workflows.StatePaused)
	r.send(id, workflows.CommandAmend, workflows.Command{Set: run.Settings{"rl.optimizer.lr": "1e-5"}})
	r.send(id, workflows.CommandResume, workflows.Command{})
	r.awaitClosed(flow)
	if len(r.w.amends) != 1 || r.w.amends[0].Amendment.FromStep != 3 {
		r.Errorf("amendments %+v, want one from step 3", r.w.amends)
	}
	r.keep("interrupted-stage", workflows.StageWorkflowID(id, 1, "hop1"))
}
