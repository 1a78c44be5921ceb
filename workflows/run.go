package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// Labels of the evaluations of a stage.
const (
	LabelBefore = "before" // the policy after SFT, before any RL
	LabelAfter  = "after"  // the policy at the end of the stage
	LabelFinal  = "final"  // the policy at the end of the run, or any policy later on
)

// RunResult is the result of RLRun.
type RunResult struct {
	RunID       string            `json:"run_id"`
	SummaryPath string            `json:"summary_path"`
	Policy      activities.Policy `json:"policy"`
	Stopped     bool              `json:"stopped,omitempty"`
}

// RLRun executes a run from its configuration to its final policy. Its input is
// what a person writes; see activities.RunInput.
func RLRun(ctx workflow.Context, in activities.RunInput) (RunResult, error) {
	r := &run{in: in, doing: StatePreparing, started: workflow.Now(ctx)}
	if err := r.setup(ctx); err != nil {
		return RunResult{}, err
	}
	return r.end(ctx, r.execute(ctx))
}

type run struct {
	in      activities.RunInput
	plan    activities.RunPlan
	ref     activities.RunRef
	policy  activities.Policy
	sft     activities.TrainSFTResult
	reports []activities.StageReport
	started time.Time

	gate       gate
	forwarding workflow.Mutex
	// child is the stage that runs now, with its workflow id; nil between stages.
	child   workflow.ChildWorkflowFuture
	childID string

	// doing, stage, step, notes and the rest are what the status tells.
	doing   State
	sftStep int
	stage   int // from 1
	last    StepNumbers
	notes   []string // by stage
	summary string
}

// setup installs the handlers before anything blocks.
func (r *run) setup(ctx workflow.Context) error {
	if r.in.RunID == "" {
		r.in.RunID = RunIDFromWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID)
	}
	r.forwarding = workflow.NewMutex(ctx)
	r.gate = gate{scope: "run", forward: r.forward, peer: signalStageGate, fromPeer: r.stageTold}
	err := r.gate.listen(ctx, map[string]string{
		CommandPause:  "Pauses the run at the next safe point: after the current step, chunk of SFT or evaluation. Argument: {\"reason\": \"...\"}, optional.",
		CommandResume: "Lets the paused run go on.",
		CommandStop:   "Ends the run at the next safe point and writes its summary. Argument: {\"reason\": \"...\"}, optional.",
	})
	if err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus,
		func() (RunStatus, error) { return r.status(), nil },
		workflow.QueryHandlerOptions{Description: "What the run is doing; the steps are told by the workflow named in child."})
}

// execute is the run. It returns errStop when a stop cut it short.
func (r *run) execute(ctx workflow.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.trainSFT(ctx); err != nil {
		return err
	}
	for i := range r.reports {
		if err := r.evaluate(ctx, i, LabelBefore); err != nil {
			return err
		}
	}
	for i := range r.reports {
		if err := r.runStage(ctx, i); err != nil {
			return err
		}
		if err := r.evaluate(ctx, i, LabelAfter); err != nil {
			return err
		}
	}
	return r.evaluateFinal(ctx)
}

// evaluateFinal measures what the run's policy has kept of the earlier stages.
func (r *run) evaluateFinal(ctx workflow.Context) error {
	for i := range r.reports {
		if after := r.reports[i].After; after.PolicyVersion == r.policy.Version {
			r.reports[i].Final = after
			r.reports[i].Final.Label = LabelFinal
			continue
		}
		if err := r.evaluate(ctx, i, LabelFinal); err != nil {
			return err
		}
	}
	return nil
}

// open freezes the configuration and learns the plan.
func (r *run) open(ctx workflow.Context) error {
	var control *activities.Control
	if err := workflow.ExecuteLocalActivity(inline(ctx, ""), control.OpenRun, r.in).Get(ctx, &r.plan); err != nil {
		return err
	}
	r.ref = activities.RunRef{RunID: r.plan.RunID, Config: r.plan.Config}
	r.notes = make([]string, len(r.plan.Stages))
	for _, p := range r.plan.Stages {
		r.reports = append(r.reports, activities.StageReport{Plan: p})
	}
	if !r.plan.SearchAttributes {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx,
		temporal.NewSearchAttributeKeyKeyword(AttributeRun).ValueSet(r.plan.RunID))
}

func (r *run) prepare(ctx workflow.Context) error {
	if err := r.gate.pass(ctx, r.onPause); err != nil {
		return err
	}
	var control *activities.Control
	return workflow.ExecuteLocalActivity(inline(ctx, "problems, dialogues, tokenizer"), control.PrepareData,
		activities.PrepareDataInput{Run: r.ref}).Get(ctx, nil)
}

// trainSFT teaches the format in chunks, each ending in a checkpoint and
// followed by a safe point, and publishes the result as policy 0.
func (r *run) trainSFT(ctx workflow.Context) error {
	var trainer *activities.Trainer
	for r.sftStep < r.plan.SFTSteps {
		if err := r.enter(ctx, StateSFT); err != nil {
			return err
		}
		to := min(r.sftStep+SFTChunk, r.plan.SFTSteps)
		summary := fmt.Sprintf("SFT updates %d-%d of %d", r.sftStep+1, to, r.plan.SFTSteps)
		var out activities.TrainSFTResult
		err := workflow.ExecuteActivity(onTrainer(ctx, summary), trainer.TrainSFT,
			activities.TrainSFTInput{Run: r.ref, From: r.sftStep, To: to, Save: true}).Get(ctx, &out)
		if err != nil {
			return err
		}
		out.TrainTime += r.sft.TrainTime // the metrics are the last chunk's, the time is of all
		r.sft, r.sftStep = out, to
	}
	return workflow.ExecuteActivity(onTrainer(ctx, "policy 0"), trainer.PublishPolicy,
		activities.PublishInput{Run: r.ref, Step: 0}).Get(ctx, &r.policy)
}

// evaluate measures the current policy on the held-out problems of stage i.
func (r *run) evaluate(ctx workflow.Context, i int, label string) error {
	if err := r.enter(ctx, StateEvaluating); err != nil {
		return err
	}
	report := &r.reports[i]
	out := map[string]*activities.EvalResult{
		LabelBefore: &report.Before, LabelAfter: &report.After, LabelFinal: &report.Final,
	}[label]
	var rollouts *activities.Rollouts
	summary := fmt.Sprintf("policy %d on stage %s, %s", r.policy.Version, report.Plan.Name, label)
	err := workflow.ExecuteActivity(onRollouts(ctx, summary), rollouts.EvaluatePolicy, activities.EvaluateInput{
		Run: r.ref, Stage: report.Plan.Index, Policy: r.policy, Label: label,
	}).Get(ctx, out)
	if err != nil {
		return err
	}
	out.Label = label // marks the report as measured
	r.show(ctx)
	return nil
}

// runStage runs a stage as a child workflow, which has its own page, history
// and pause button in the web UI.
func (r *run) runStage(ctx workflow.Context, i int) error {
	if err := r.enter(ctx, StateTraining); err != nil {
		return err
	}
	plan := r.reports[i].Plan
	r.stage = plan.Index
	if err := r.upsertStage(ctx, plan.Name); err != nil {
		return err
	}
	if err := logEvent(ctx, r.ref, "stage", fmt.Sprintf("stage %d (%s) begins: %d steps", plan.Index, plan.Name, plan.Steps)); err != nil {
		return err
	}
	r.childID = StageWorkflowID(r.plan.RunID, plan.Index, plan.Name)
	child := asChild(ctx, r.childID, fmt.Sprintf("stage %d of %d: %s, steps %d-%d",
		plan.Index, len(r.reports), plan.Name, plan.FirstStep, plan.FirstStep+plan.Steps-1),
		searchAttributes(r.plan.SearchAttributes, r.plan.RunID, plan.Name, 0))
	r.child = workflow.ExecuteChildWorkflow(child, RLStage, r.stageInput(plan))
	r.show(ctx)
	var out StageResult
	err := r.child.Get(child, &out)
	r.gate.drain(ctx) // what the stage said last comes before what it returned
	r.child, r.childID, r.gate.waiting = nil, "", false
	if err != nil {
		return err
	}
	r.policy, r.last = out.Policy, out.Last
	r.reports[i].Filter, r.notes[i] = out.Filter, out.Note
	if out.Gate.Paused && !r.gate.Stopping {
		r.gate.gateState = out.Gate
	}
	return nil
}

func (r *run) stageInput(plan activities.StagePlan) StageInput {
	return StageInput{
		Run: r.ref, Plan: plan, NumSteps: r.plan.NumSteps(), CheckpointEvery: r.plan.CheckpointEvery,
		NumShards: NumRolloutShards, StepsPerExecution: StepsPerExecution,
		SearchAttributes: r.plan.SearchAttributes,
		Progress: StageProgress{
			NextStep: plan.FirstStep, Policy: r.policy, Gate: r.gate.gateState, Last: r.last, StepSeconds: r.last.Seconds,
		},
	}
}

func (r *run) upsertStage(ctx workflow.Context, name string) error {
	if !r.plan.SearchAttributes {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, temporal.NewSearchAttributeKeyKeyword(AttributeStage).ValueSet(name))
}

// enter passes a safe point and shows what the run does next.
func (r *run) enter(ctx workflow.Context, doing State) error {
	if err := r.gate.pass(ctx, r.onPause); err != nil {
		return err
	}
	r.doing = doing
	r.show(ctx)
	return nil
}

func (r *run) onPause(ctx workflow.Context, paused bool) error {
	r.show(ctx)
	return logPause(ctx, r.ref, paused, r.gate.Reason, fmt.Sprintf("while %s", r.doing))
}
