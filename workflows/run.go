package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

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
	info := workflow.GetInfo(ctx)
	wrong := in.CheckKeys()
	if in.RunID == "" {
		wrong = errors.Join(wrong, checkWorkflowID(info.WorkflowExecution.ID))
	}
	in.RunID = runIDOfStart(info, cmp.Or(in.RunID, RunIDFromWorkflowID(info.WorkflowExecution.ID)))
	r := newRun(in)
	r.wrong = wrong
	if err := r.listen(ctx); err != nil {
		return RunResult{}, err
	}
	return r.end.close(ctx, r.execute(ctx))
}

// runFlow is the execution of a run.
type runFlow struct {
	in    run.Input
	wrong error // with the input

	at          *progress
	gate        *gate // holds the commands that the run was given
	state       *runState
	room        *clusterRoom
	workers     *runWorkers
	evaluations *evaluations
	link        *stageLink // leads to the stage under way
	end         *runEnd
}

// newRun makes the parts of a run, which know each other.
func newRun(in run.Input) *runFlow {
	at, gate := newProgress(), &gate{scope: "run"}
	state := &runState{runID: in.RunID, at: at, gate: gate, doing: StatePreparing}
	room := &clusterRoom{spec: in.Placement, run: in.RunID, priority: in.Priority, gate: gate, state: state}
	state.room = room
	workers := &runWorkers{at: at, room: room}
	return &runFlow{
		in: in, at: at, gate: gate, state: state, room: room, workers: workers,
		evaluations: &evaluations{at: at, state: state, workers: workers},
		link:        &stageLink{receipts: map[int]receipt{}, adopt: at.adoptAnswer},
		end:         &runEnd{in: in, at: at, gate: gate, state: state, room: room},
	}
}

// listen installs the handlers before anything blocks.
func (r *runFlow) listen(ctx workflow.Context) error {
	r.room.holder, r.end.started = workflow.GetInfo(ctx).WorkflowExecution.ID, workflow.Now(ctx)
	r.link.forwarding, r.link.seal = workflow.NewMutex(ctx), seal(ctx)
	steering := &steering{at: r.at, gate: r.gate, state: r.state, link: r.link, end: r.end}
	r.gate.carry = steering.handlers()
	r.gate.save, r.gate.onPause, r.gate.vacate = r.save, r.onPause, r.room.vacate
	r.gate.ref = func() run.Ref { return r.at.ref }
	r.gate.forward = func(ctx workflow.Context) {
		r.state.showCommand(ctx)
		r.link.forward(ctx, func() gateOrder { return gateOrder{holding: r.gate.holding, Yield: r.gate.Yield} })
	}
	r.gate.others = []signalHandler{{signalStageGate, r.takeStageSignal}, {signalReceipt, r.link.takeReceipt}, {signalFreeze, r.takeFreeze}, {signalPlacement, r.room.takeDecision}}
	if err := r.gate.listen(ctx); err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus,
		func() (RunStatus, error) { return r.state.status(), nil },
		workflow.QueryHandlerOptions{Description: "What the run is doing; the workflow named in child answers for the steps."})
}

// execute is the run. It returns errStop when a stop cut it short.
func (r *runFlow) execute(ctx workflow.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.room.enter(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for i := 0; i < len(r.at.reports); {
		for ; i < len(r.at.reports); i++ { // a command may add stages
			if err := r.runStage(ctx, i); err != nil {
				return err
			}
		}
		if err := r.evaluations.final(ctx); err != nil {
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
	if r.at.plan.Fork != nil {
		return r.beginFork(ctx, *r.at.plan.Fork)
	}
	if err := r.trainSFT(ctx); err != nil {
		return err
	}
	for i := range r.at.reports {
		if err := r.evaluations.ofStage(ctx, i, LabelBefore); err != nil {
			return err
		}
	}
	if err := r.evaluations.passGate(ctx); err != nil {
		return err
	}
	return r.evaluations.ofSets(ctx)
}

// open freezes the configuration and learns the plan.
func (r *runFlow) open(ctx workflow.Context) error {
	if err := refuse(r.wrong); err != nil {
		return err
	}
	var control *activities.Control
	if err := doControl(ctx, "open run "+r.in.RunID, control.OpenRun, r.in, &r.at.plan); err != nil {
		return err
	}
	r.at.applyPlan()
	return r.at.describe(ctx, runAttributes(r.at.plan.RunID))
}

// prepare has the data prepared outside of workflow tasks, since it may take longer than
// a task may.
func (r *runFlow) prepare(ctx workflow.Context) error {
	if err := r.gate.pass(ctx); err != nil {
		return err
	}
	var control *activities.Control
	in := activities.PrepareDataInput{Run: r.at.ref}
	const summary = "prepare problems, dialogues, tokenizer"
	options := workflow.WithActivityOptions(ctx, activityOptions(QueueControl, prepareTimeout, summary))
	err := workflow.ExecuteActivity(workflow.WithPriority(options, priority(r.at.plan.Priority)), control.PrepareData, in).Get(ctx, nil)
	r.at.prepared = err == nil
	return err
}

// trainSFT teaches the format in chunks, each ending in a checkpoint and
// followed by a safe point, and publishes the result as policy 0.
func (r *runFlow) trainSFT(ctx workflow.Context) error {
	var trainer *activities.Trainer
	for r.at.sftStep < r.at.plan.SFTSteps {
		to := min(r.at.sftStep+SFTChunk, r.at.plan.SFTSteps)
		var out run.SFTResult
		err := r.state.work(ctx, StateSFT, func(ctx workflow.Context) error {
			summary := fmt.Sprintf("SFT updates %d-%d of %d", r.at.sftStep+1, to, r.at.plan.SFTSteps)
			return workflow.ExecuteActivity(r.workers.onTrainer(ctx, summary), trainer.TrainSFT,
				activities.TrainSFTInput{Run: r.at.ref, From: r.at.sftStep, To: to, Save: true}).Get(ctx, &out)
		})
		if err != nil {
			return err
		}
		out.TrainTime += r.at.sft.TrainTime // the metrics are the last chunk's, the time is of all
		r.at.sft, r.at.sftStep = out, to
	}
	r.at.saved = 0
	return r.workers.publish(ctx, 0)
}

// runStage runs a stage as a child workflow, which has its own page, history
// and pause button in the web UI, and evaluates what came of it.
func (r *runFlow) runStage(ctx workflow.Context, i int) error {
	if err := r.state.enter(ctx, StateTraining); err != nil {
		return err
	}
	plan := r.at.reports[i].Plan
	r.at.stage = plan.Index
	switch over, err := r.passOver(ctx, i); {
	case err != nil:
		return err
	case over:
		return nil
	}
	shown := r.at.last
	if !r.at.plan.ProgressAttributes {
		shown = StepNumbers{}
	}
	if err := r.at.describe(ctx, stageAttributes(plan.Name, shown)); err != nil {
		return err
	}
	if err := logEvent(ctx, r.at.ref, "stage", fmt.Sprintf("stage %d (%s) begins: %d steps", plan.Index, plan.Name, plan.Steps)); err != nil {
		return err
	}
	if err := r.gate.idle(ctx); err != nil { // an amendment of the stage's first step
		return err
	}
	out, err := r.runChild(ctx, i)
	if err != nil {
		return err
	}
	r.at.policy, r.at.last = out.Policy, out.Last
	r.at.reports[i].Filter = out.Filter
	if out.Note != "" {
		r.at.notes[i] = out.Note
	}
	r.at.made[i] += out.Made
	if err := r.noteCut(ctx, i, out); err != nil {
		return err
	}
	r.at.saved = max(r.at.saved, out.Saved)
	if out.Gate.Paused && !r.gate.Stopping {
		r.gate.holding = out.Gate.holding
	}
	r.gate.Save = r.gate.Save || out.Gate.Save
	if err := r.evaluations.ofStage(ctx, i, LabelAfter); err != nil {
		return err
	}
	return r.evaluations.ofSets(ctx)
}

// passOver leaves out a stage that is to be skipped, or that the parent of a
// fork has finished.
func (r *runFlow) passOver(ctx workflow.Context, i int) (bool, error) {
	plan := r.at.reports[i].Plan
	if f := r.at.plan.Fork; f != nil && plan.FirstStep+plan.Steps-1 <= f.Step {
		r.at.notes[i] = "made by run " + f.RunID
		return true, nil
	}
	if over, err := r.skipInherited(ctx, i); over || err != nil {
		return over, err
	}
	why, skipped := r.at.skips[i]
	if !skipped {
		return false, nil
	}
	r.at.notes[i] = why
	if err := logEvent(ctx, r.at.ref, "skip", fmt.Sprintf("stage %d (%s): %s", plan.Index, plan.Name, why)); err != nil {
		return true, err
	}
	return true, r.evaluations.ofStage(ctx, i, LabelAfter)
}

// runChild runs the workflow of a stage to its end.
func (r *runFlow) runChild(ctx workflow.Context, i int) (StageResult, error) {
	r.at.reports[i].Plan.Offset = r.at.madeBefore(i)
	plan := r.at.reports[i].Plan
	r.state.childID = StageWorkflowID(r.at.plan.RunID, plan.Index, plan.Name)
	child := asChild(ctx, r.state.childID, fmt.Sprintf("stage %d of %d: %s, steps %d-%d",
		plan.Index, len(r.at.reports), plan.Name, plan.FirstStep, plan.FirstStep+plan.Steps-1),
		searchAttributes(r.at.plan.SearchAttributes, r.at.plan.RunID, plan.Name, 0))
	child = workflow.WithWorkflowPriority(child, priority(r.at.plan.Priority))
	in := r.at.stageInput(plan, r.room.queues())
	in.Progress.Gate, in.Seal = gateState{holding: r.gate.holding, Yield: r.gate.Yield}, r.link.seal
	r.link.child = workflow.ExecuteChildWorkflow(child, RLStage, in)
	r.state.show(ctx)
	var out StageResult
	err := r.link.child.Get(child, &out)
	r.gate.drain(ctx) // the last signals of the stage come before its result
	r.link.child, r.state.childID, r.gate.waiting = nil, "", false
	return out, err
}

func (r *runFlow) onPause(ctx workflow.Context, paused bool) error {
	r.state.show(ctx)
	if paused && r.gate.Paused {
		r.room.parkWhenPaused(ctx)
	}
	if err := r.state.publish(ctx); err != nil {
		return err
	}
	return r.state.logPause(ctx, paused)
}

// save makes a checkpoint between stages. Each chunk of SFT ends with one anyway.
func (r *runFlow) save(ctx workflow.Context) error {
	if r.state.doing == StateSFT || r.state.doing == StatePreparing {
		return nil
	}
	step := int(r.at.policy.Version)
	if err := saveCheckpoint(r.workers.onTrainer(ctx, fmt.Sprintf("checkpoint after step %d, as ordered", step)), r.at.ref, step); err != nil {
		return err
	}
	r.at.saved = max(r.at.saved, step)
	return nil
}

// takeStageSignal notes that the stage stands at a safe point or goes on.
func (r *runFlow) takeStageSignal(ctx workflow.Context, content signalContent) error {
	var news stageSignal
	if err := content.decode(&news); err != nil {
		return err
	}
	if news.Seal != r.link.seal {
		return errForeignSignal
	}
	r.state.alerts = news.Alerts
	if news.OnlyAlerts {
		r.state.show(ctx)
		return nil
	}
	if r.gate.Stopping || r.link.child == nil {
		return nil
	}
	r.gate.holding, r.gate.waiting = news.holding, news.Paused || news.Yields
	if news.Yields {
		r.room.vacateBeside(ctx)
	}
	if news.Paused {
		r.room.parkWhenPaused(ctx)
	}
	r.at.saved = max(r.at.saved, news.Saved)
	if news.Last.Step > r.at.last.Step {
		r.at.last = news.Last
	}
	r.state.show(ctx)
	r.state.tryPublish(ctx)
	return nil
}
