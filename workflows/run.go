package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// Labels of the evaluations of a stage.
const (
	LabelBefore = "before" // the policy after SFT, before any RL
	LabelAfter  = "after"  // the policy at the end of the stage
	LabelFinal  = "final"  // the policy at the end of the run
)

// LabelStep labels the evaluation on demand of a policy, by the step that published it.
func LabelStep(version int64) string { return fmt.Sprintf("step-%06d", version) }

// RunResult is the result of RLRun.
type RunResult struct {
	RunID       string     `json:"run_id"`
	SummaryPath string     `json:"summary_path"`
	Policy      run.Policy `json:"policy"`
	Stopped     bool       `json:"stopped,omitempty"`
	// Restarted is the run that goes on instead of this one.
	Restarted string `json:"restarted,omitempty"`
}

// RLRun executes a run from its configuration to its final policy. Its input is
// what a person writes; see run.Input.
func RLRun(ctx workflow.Context, in run.Input) (RunResult, error) {
	r := &runFlow{in: in, course: newCourse(), started: workflow.Now(ctx)}
	if err := r.setup(ctx); err != nil {
		return RunResult{}, err
	}
	return ending{r}.close(ctx, r.execute(ctx))
}

// runFlow is the execution of a run. Its course is what it knows, its gate holds the
// commands that it was given, and its link leads to the stage under way.
type runFlow struct {
	course
	in      run.Input
	wrong   error // with the input
	started time.Time
	gate    gate
	link    stageLink
	// next is the run that goes on instead of this one.
	next       *run.Input
	shownState State // as search attribute
	// asked says that the run has asked for room, parking that it is about to give it back.
	asked, parking bool
}

// setup installs the handlers before anything blocks.
func (r *runFlow) setup(ctx workflow.Context) error {
	info := workflow.GetInfo(ctx)
	r.wrong = r.in.CheckKeys()
	if r.in.RunID == "" {
		r.wrong = errors.Join(r.wrong, checkWorkflowID(info.WorkflowExecution.ID))
	}
	r.in.RunID = ofFiring(info, cmp.Or(r.in.RunID, RunIDFromWorkflowID(info.WorkflowExecution.ID)))
	r.room = tenancy{spec: r.in.Placement, run: r.in.RunID, holder: info.WorkflowExecution.ID, priority: r.in.Priority, changed: lodging{r}.changed}
	r.link = stageLink{forwarding: workflow.NewMutex(ctx), seal: seal(ctx), receipts: map[int]receipt{}, adopt: r.adoptAnswer}
	r.gate = gate{
		scope: "run", save: r.save, onPause: r.onPause, vacate: lodging{r}.vacate, carry: steering{r}.handlers(), ref: func() run.Ref { return r.ref },
		forward: func(ctx workflow.Context) {
			steering{r}.showCommand(ctx)
			r.link.forward(ctx, func() gateOrder { return gateOrder{holding: r.gate.holding, Yield: r.gate.Yield} })
		},
		others: []inbox{{signalStageGate, r.takeStageNews}, {signalReceipt, r.link.takeReceipt}, {signalFreeze, freezing{r}.take}, {signalPlacement, r.room.take}},
	}
	if err := r.gate.listen(ctx); err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus,
		func() (RunStatus, error) { return r.status(), nil },
		workflow.QueryHandlerOptions{Description: "What the run is doing; the steps are told by the workflow named in child."})
}

// execute is the run. It returns errStop when a stop cut it short.
func (r *runFlow) execute(ctx workflow.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := (lodging{r}).enter(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for i := 0; i < len(r.reports); {
		for ; i < len(r.reports); i++ { // a command may add stages
			if err := r.runStage(ctx, i); err != nil {
				return err
			}
		}
		if err := r.evaluateFinal(ctx); err != nil {
			return err
		}
		if err := r.gate.idle(ctx); err != nil { // an order that adds a stage
			return err
		}
	}
	return nil
}

// begin makes or takes over the policy that the stages start from.
func (r *runFlow) begin(ctx workflow.Context) error {
	if r.plan.Fork != nil {
		return inheritance{r}.begin(ctx, *r.plan.Fork)
	}
	if err := r.trainSFT(ctx); err != nil {
		return err
	}
	for i := range r.reports {
		if err := r.evaluate(ctx, i, LabelBefore); err != nil {
			return err
		}
	}
	if err := (measuring{r}).passGate(ctx); err != nil {
		return err
	}
	return (measuring{r}).evaluateSets(ctx)
}

// evaluateFinal measures what the run's policy has kept of the earlier stages.
func (r *runFlow) evaluateFinal(ctx workflow.Context) error {
	for i := range r.reports {
		if after := r.reports[i].After; after.Label != "" && after.PolicyVersion == r.policy.Version {
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
func (r *runFlow) open(ctx workflow.Context) error {
	if err := refuse(r.wrong); err != nil {
		return err
	}
	var control *activities.Control
	if err := bookkeep(ctx, "open run "+r.in.RunID, control.OpenRun, r.in, &r.plan); err != nil {
		return err
	}
	r.applyPlan()
	return r.describe(ctx, runAttributes(r.plan.RunID))
}

// prepare has the data prepared outside of workflow tasks, since it may take longer than
// a task may.
func (r *runFlow) prepare(ctx workflow.Context) error {
	if err := r.gate.pass(ctx); err != nil {
		return err
	}
	var control *activities.Control
	in := activities.PrepareDataInput{Run: r.ref}
	const summary = "prepare problems, dialogues, tokenizer"
	options := workflow.WithActivityOptions(ctx, activityOptions(QueueControl, prepareTimeout, summary))
	err := workflow.ExecuteActivity(workflow.WithPriority(options, priority(r.plan.Priority)), control.PrepareData, in).Get(ctx, nil)
	r.prepared = err == nil
	return err
}

// trainSFT teaches the format in chunks, each ending in a checkpoint and
// followed by a safe point, and publishes the result as policy 0.
func (r *runFlow) trainSFT(ctx workflow.Context) error {
	var trainer *activities.Trainer
	for r.sftStep < r.plan.SFTSteps {
		to := min(r.sftStep+SFTChunk, r.plan.SFTSteps)
		var out run.SFTResult
		err := r.work(ctx, StateSFT, func(ctx workflow.Context) error {
			summary := fmt.Sprintf("SFT updates %d-%d of %d", r.sftStep+1, to, r.plan.SFTSteps)
			return workflow.ExecuteActivity(r.onTrainer(ctx, summary), trainer.TrainSFT,
				activities.TrainSFTInput{Run: r.ref, From: r.sftStep, To: to, Save: true}).Get(ctx, &out)
		})
		if err != nil {
			return err
		}
		out.TrainTime += r.sft.TrainTime // the metrics are the last chunk's, the time is of all
		r.sft, r.sftStep = out, to
	}
	r.saved = 0
	return r.publish(ctx, 0)
}

// evaluate measures the current policy on the held-out problems of stage i.
func (r *runFlow) evaluate(ctx workflow.Context, i int, label string) error {
	plan := r.reports[i].Plan
	var out run.Evaluation
	err := r.work(ctx, StateEvaluating, func(ctx workflow.Context) error {
		var rollouts *activities.Rollouts
		summary := fmt.Sprintf("evaluate policy %d on stage %s, %s", r.policy.Version, plan.Name, label)
		in := activities.EvaluateInput{Run: r.ref, Stage: plan.Source(), Policy: r.policy, Label: label}
		return mending(ctx, r.room.queues(), r.ref, func() error {
			return workflow.ExecuteActivity(r.onRollouts(ctx, summary), rollouts.EvaluatePolicy, in).Get(ctx, &out)
		})
	})
	if err != nil {
		return err
	}
	out.Label = label // marks the report as measured
	report := &r.reports[i]
	switch label {
	case LabelBefore:
		report.Before = out
	case LabelAfter:
		report.After = out
	case LabelFinal:
		report.Final = out
	}
	r.show(ctx)
	return nil
}

// runStage runs a stage as a child workflow, which has its own page, history
// and pause button in the web UI, and evaluates what came of it.
func (r *runFlow) runStage(ctx workflow.Context, i int) error {
	if err := r.enter(ctx, StateTraining); err != nil {
		return err
	}
	plan := r.reports[i].Plan
	r.stage = plan.Index
	switch over, err := r.passOver(ctx, i); {
	case err != nil:
		return err
	case over:
		return nil
	}
	shown := r.last
	if !r.plan.ProgressAttributes {
		shown = StepNumbers{}
	}
	if err := r.describe(ctx, stageAttributes(plan.Name, shown)); err != nil {
		return err
	}
	if err := logEvent(ctx, r.ref, "stage", fmt.Sprintf("stage %d (%s) begins: %d steps", plan.Index, plan.Name, plan.Steps)); err != nil {
		return err
	}
	if err := r.gate.idle(ctx); err != nil { // an amendment of the stage's first step
		return err
	}
	out, err := r.runChild(ctx, i)
	if err != nil {
		return err
	}
	r.policy, r.last = out.Policy, out.Last
	r.reports[i].Filter = out.Filter
	if out.Note != "" {
		r.notes[i] = out.Note
	}
	r.made[i] += out.Made
	if err := (inheritance{r}).noteCut(ctx, i, out); err != nil {
		return err
	}
	r.saved = max(r.saved, out.Saved)
	if out.Gate.Paused && !r.gate.Stopping {
		r.gate.holding = out.Gate.holding
	}
	r.gate.Save = r.gate.Save || out.Gate.Save
	if err := r.evaluate(ctx, i, LabelAfter); err != nil {
		return err
	}
	return (measuring{r}).evaluateSets(ctx)
}

// passOver leaves out a stage that is to be skipped, or that the parent of a
// fork has finished.
func (r *runFlow) passOver(ctx workflow.Context, i int) (bool, error) {
	plan := r.reports[i].Plan
	if f := r.plan.Fork; f != nil && plan.FirstStep+plan.Steps-1 <= f.Step {
		r.notes[i] = "made by run " + f.RunID
		return true, nil
	}
	if over, err := (inheritance{r}).passOver(ctx, i); over || err != nil {
		return over, err
	}
	why, skipped := r.skips[i]
	if !skipped {
		return false, nil
	}
	r.notes[i] = why
	if err := logEvent(ctx, r.ref, "skip", fmt.Sprintf("stage %d (%s): %s", plan.Index, plan.Name, why)); err != nil {
		return true, err
	}
	return true, r.evaluate(ctx, i, LabelAfter)
}

// runChild runs the workflow of a stage to its end.
func (r *runFlow) runChild(ctx workflow.Context, i int) (StageResult, error) {
	r.reports[i].Plan.Offset = r.madeBefore(i)
	plan := r.reports[i].Plan
	r.childID = StageWorkflowID(r.plan.RunID, plan.Index, plan.Name)
	child := asChild(ctx, r.childID, fmt.Sprintf("stage %d of %d: %s, steps %d-%d",
		plan.Index, len(r.reports), plan.Name, plan.FirstStep, plan.FirstStep+plan.Steps-1),
		searchAttributes(r.plan.SearchAttributes, r.plan.RunID, plan.Name, 0))
	child = workflow.WithWorkflowPriority(child, priority(r.plan.Priority))
	in := r.stageInput(plan)
	in.Progress.Gate, in.Seal = gateState{holding: r.gate.holding, Yield: r.gate.Yield}, r.link.seal
	r.link.child = workflow.ExecuteChildWorkflow(child, RLStage, in)
	r.show(ctx)
	var out StageResult
	err := r.link.child.Get(child, &out)
	r.gate.drain(ctx) // the last signals of the stage come before its result
	r.link.child, r.childID, r.gate.waiting = nil, "", false
	return out, err
}

// work does what a command may interrupt, and again after an interruption.
func (r *runFlow) work(ctx workflow.Context, doing State, do func(workflow.Context) error) error {
	return r.gate.work(ctx, func(ctx workflow.Context) error {
		if err := r.showState(ctx, doing); err != nil {
			return err
		}
		return do(ctx)
	})
}

// enter passes a safe point and shows what the run does next.
func (r *runFlow) enter(ctx workflow.Context, doing State) error {
	if err := r.gate.pass(ctx); err != nil {
		return err
	}
	return r.showState(ctx, doing)
}

// showState shows what the run does now.
func (r *runFlow) showState(ctx workflow.Context, doing State) error {
	r.doing = doing
	r.show(ctx)
	return r.publishState(ctx)
}

func (r *runFlow) onPause(ctx workflow.Context, paused bool) error {
	r.show(ctx)
	if paused && r.gate.Paused {
		lodging{r}.parkWhenPaused(ctx)
	}
	if err := r.publishState(ctx); err != nil {
		return err
	}
	return logPause(ctx, r.ref, paused, r.gate.why(), fmt.Sprintf("while %s", r.doing))
}

// save makes a checkpoint between stages. Each chunk of SFT ends with one anyway.
func (r *runFlow) save(ctx workflow.Context) error {
	if r.doing == StateSFT || r.doing == StatePreparing {
		return nil
	}
	step := int(r.policy.Version)
	if err := saveCheckpoint(r.onTrainer(ctx, fmt.Sprintf("checkpoint after step %d, as ordered", step)), r.ref, step); err != nil {
		return err
	}
	r.saved = max(r.saved, step)
	return nil
}

// takeStageNews notes that the stage stands at a safe point or goes on.
func (r *runFlow) takeStageNews(ctx workflow.Context, content letter) error {
	var news stageNews
	if err := content.decode(&news); err != nil {
		return err
	}
	if news.Seal != r.link.seal {
		return errStranger
	}
	r.alerts = news.Alerts
	if news.OnlyAlerts {
		r.show(ctx)
		return nil
	}
	if r.gate.Stopping || r.link.child == nil {
		return nil
	}
	r.gate.holding, r.gate.waiting = news.holding, news.Paused || news.Yields
	if news.Yields {
		lodging{r}.vacateBeside(ctx)
	}
	if news.Paused {
		lodging{r}.parkWhenPaused(ctx)
	}
	r.saved = max(r.saved, news.Saved)
	if news.Last.Step > r.last.Step {
		r.last = news.Last
	}
	r.show(ctx)
	if err := r.publishState(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("status not told", "run_id", r.ref.RunID, "err", err)
	}
	return nil
}
