package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/retrain"
)

// Retrain makes one re-training of a schedule: it looks for new problems, runs RLRun on
// them from the last good policy, and publishes the new policy if it passes the gate. A
// Temporal Schedule starts it; a person writes its one argument there, see retrain.Input.
func Retrain(ctx workflow.Context, in retrain.Input) (retrain.Outcome, error) {
	info := workflow.GetInfo(ctx)
	r := &retraining{in: in, runID: runIDOfStart(info, retrainRunID(info.WorkflowExecution.ID))}
	out, err := r.execute(ctx)
	if err == nil {
		r.showOutcome(ctx, out)
		return out, nil
	}
	if canceled(ctx, err) {
		r.recordEnd(ctx, "cancel", "the re-training was cancelled")
		return retrain.Outcome{}, temporal.NewCanceledError()
	}
	err = asFailure(err)
	r.recordEnd(ctx, "fail", failureText(err))
	return retrain.Outcome{}, err
}

const retrainPrefix = "retrain/"

// RetrainWorkflowID is the workflow id of the re-trainings of a schedule. The
// server appends the time of each.
func RetrainWorkflowID(scheduleID string) string { return retrainPrefix + scheduleID }

// retrainRunID names the run of a re-training like its workflow, in the form of a
// run id: retrain/nightly-2026-11-21T03:00:00Z makes nightly-2026-11-21T03-00-00Z.
func retrainRunID(workflowID string) string {
	return RunIDFromWorkflowID(strings.TrimPrefix(workflowID, retrainPrefix))
}

type retraining struct {
	in    retrain.Input
	runID string
	plan  retrain.Plan
}

func (r *retraining) execute(ctx workflow.Context) (retrain.Outcome, error) {
	if err := refuse(errors.Join(r.in.CheckKeys(), checkWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID))); err != nil {
		return retrain.Outcome{}, err
	}
	var control *activities.Control
	r.show(ctx, "looking for new problems")
	err := doControl(ctx, "plan: new problems, recipe", control.PlanRetrain, activities.PlanRetrainInput{
		Retrain: r.in, RunID: r.runID, Now: workflow.Now(ctx),
	}, &r.plan)
	if err != nil {
		return retrain.Outcome{}, err
	}
	r.runID = r.plan.RunID // the recorded one, also in a replay under another workflow id
	if r.plan.Nothing != "" {
		out := retrain.Outcome{RunID: r.runID, Outcome: retrain.Nothing, Reason: r.plan.Nothing, Ended: workflow.Now(ctx)}
		return out, r.log(ctx, "nothing", r.plan.Nothing)
	}
	text := fmt.Sprintf("run %s begins: %d problems of %s%s", r.runID, r.plan.NumProblems, r.files(), r.from())
	if err := r.log(ctx, "start", text); err != nil {
		return retrain.Outcome{}, err
	}
	result, err := r.train(ctx)
	if err != nil {
		return retrain.Outcome{}, err
	}
	r.show(ctx, "comparing the policies")
	plan := r.plan
	plan.Config = "" // the run has it
	var out retrain.Outcome
	err = doControl(ctx, "judge the new policy at the gate", control.JudgeRetrain, activities.JudgeRetrainInput{
		ID: r.in.ID, Gate: r.in.Gate, Plan: plan, Policy: result.Policy, Stopped: result.Stopped, Now: workflow.Now(ctx),
	}, &out)
	return out, err
}

// train runs the child to its end. It is an ordinary run, which can be paused and
// stopped; when this workflow is ended without having a say, the run is cancelled
// and not killed, so that it leaves its summary.
func (r *retraining) train(ctx workflow.Context) (RunResult, error) {
	r.show(ctx, fmt.Sprintf("training: workflow `%s`", RunWorkflowID(r.runID)))
	config, err := json.Marshal(r.plan.Config)
	if err != nil {
		return RunResult{}, err
	}
	child := asChild(ctx, RunWorkflowID(r.runID), fmt.Sprintf("run %s of schedule %s%s", r.runID, r.in.ID, r.from()), temporal.SearchAttributes{})
	options := workflow.GetChildWorkflowOptions(child)
	options.ParentClosePolicy = enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL
	child = workflow.WithChildOptions(child, options)
	var out RunResult
	err = workflow.ExecuteChildWorkflow(child, RLRun, run.Input{RunID: r.runID, Config: config}).Get(child, &out)
	return out, err
}

func (r *retraining) files() string {
	if r.plan.NumFiles == 1 {
		return "one file"
	}
	return fmt.Sprintf("%d files", r.plan.NumFiles)
}

// from reports where the run starts.
func (r *retraining) from() string {
	if r.plan.From == "" {
		return ", from the recipe's start"
	}
	return ", from policy " + r.plan.From
}

func (r *retraining) log(ctx workflow.Context, kind, text string) error {
	var control *activities.Control
	return doControl(ctx, "event log: "+kind, control.LogRetrain, r.event(ctx, kind, text), nil)
}

func (r *retraining) event(ctx workflow.Context, kind, text string) retrain.Event {
	return retrain.Event{ID: r.in.ID, Time: workflow.Now(ctx), Kind: kind, Text: text}
}

// recordEnd leaves a last line in the schedule's event log, best effort.
func (r *retraining) recordEnd(ctx workflow.Context, kind, text string) {
	r.show(ctx, text)
	ctx, cancel := finalWrite(ctx, kind)
	defer cancel()
	var control *activities.Control
	text = fmt.Sprintf("run %s: %s", r.runID, text)
	if err := workflow.ExecuteLocalActivity(ctx, control.LogRetrain, r.event(ctx, kind, text)).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("end of re-training not recorded", "schedule", r.in.ID, "err", err)
	}
}

// show shows in the web UI what the re-training does.
func (r *retraining) show(ctx workflow.Context, doing string) {
	text := fmt.Sprintf("**%s**, schedule %s", doing, r.in.ID)
	if r.plan.NumProblems > 0 {
		text += fmt.Sprintf("\n\nRun `%s` on %d problems of %s%s; data `%.12s`", r.runID, r.plan.NumProblems, r.files(), r.from(), r.plan.Data.SHA256)
	}
	workflow.SetCurrentDetails(ctx, text)
}

func (r *retraining) showOutcome(ctx workflow.Context, out retrain.Outcome) {
	text := fmt.Sprintf("**%s**: %s", out.Outcome, out.Reason)
	if len(out.Verdicts) > 0 {
		text += fmt.Sprintf("\n\nPolicy %d of run `%s`%s\n\n| gate | passed | |\n|---|---|---|", out.Policy.Version, out.RunID, r.from())
		for _, v := range out.Verdicts {
			text += fmt.Sprintf("\n| %s | %v | %s |", v.Rule, v.Passed, escapeCell(v.Text))
		}
		text += "\n\n" + rules.GateTable(out.Candidate, out.Good)
	}
	workflow.SetCurrentDetails(ctx, text)
}
