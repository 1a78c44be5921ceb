package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/run"
)

// StageInput is one stage of a run and how far it has come.
type StageInput struct {
	Run             run.Ref   `json:"run"`
	Plan            run.Stage `json:"plan"`
	NumSteps        int       `json:"num_steps"` // of the run
	CheckpointEvery int       `json:"checkpoint_every"`
	NumShards       int       `json:"num_shards"`
	// StepsPerExecution is the number of steps before the stage continues as new.
	StepsPerExecution int  `json:"steps_per_execution"`
	SearchAttributes  bool `json:"search_attributes,omitempty"`
	// ProgressAttributes says whether step and reward are told as well.
	ProgressAttributes bool `json:"progress_attributes,omitempty"`
	// Priority of the run, 0 for the default.
	Priority int `json:"priority,omitempty"`
	// EndBefore is the step that a fork's stage ends before, as its parent's did; 0
	// = none.
	EndBefore int `json:"end_before,omitempty"`
	// Seal is what the signals of the run carry.
	Seal string `json:"seal,omitempty"`
	// Window is how many steps sampling may be ahead of learning; 0 = none.
	Window int `json:"window,omitempty"`
	// EvalSets are evaluated within the stage, each every so many steps.
	EvalSets []run.EvalSet `json:"eval_sets,omitempty"`
	// PartialTokens is how many response tokens of a trajectory one policy samples; 0 = all.
	PartialTokens int `json:"partial_rollout_tokens,omitempty"`
	// Queues are the run's own; zero values mean the queues that all runs share.
	Queues placement.Queues `json:"queues,omitzero"`
	// Progress is all that crosses continue-as-new.
	Progress StageProgress `json:"progress"`
}

// StageProgress is how far a stage has come.
type StageProgress struct {
	// NextStep is counted through the run.
	NextStep int        `json:"next_step"`
	Policy   run.Policy `json:"policy"`
	Gate     gateState  `json:"gate"`
	// Filtered is true once the stage's problems were filtered.
	Filtered bool             `json:"filtered,omitempty"`
	Filter   run.FilterResult `json:"filter"`
	Last     StepNumbers      `json:"last"`
	// StepSeconds is the running mean of step times.
	StepSeconds float64 `json:"step_seconds"`
	// Alerts are the troubles of the run that stand, one line each.
	Alerts []string `json:"alerts,omitempty"`
	// StallAfter is the time after which a step counts as stalled; 0 = never.
	StallAfter time.Duration `json:"stall_after_ns,omitempty"`
	// Made counts the steps of this stage, Saved is the last that has a checkpoint.
	Made  int `json:"made,omitempty"`
	Saved int `json:"saved,omitempty"`
	// Policies are those that sample the next steps of a stage with a window; Policy is
	// the last of them.
	Policies []run.Policy `json:"policies,omitempty"`
	// Begun is the last step whose sampling has begun, with a window.
	Begun int `json:"begun,omitempty"`
	// Interrupted is the last step that a command has interrupted. Some of its groups may be
	// sampled already.
	Interrupted int `json:"interrupted,omitempty"`
	// Ahead are steps that are sampled and not learned.
	Ahead []sampledStep `json:"ahead,omitempty"`
}

// StageResult is what the run needs of a finished stage.
type StageResult struct {
	Policy run.Policy       `json:"policy"`
	Filter run.FilterResult `json:"filter"`
	// Step is the last finished step, counted through the run.
	Step int         `json:"step"`
	Last StepNumbers `json:"last"`
	// Note says why the stage ended before its last step; empty when it did not.
	Note string `json:"note,omitempty"`
	// Cut is "skip" or "stop" where a command ended the stage, and "until" where its figures
	// did.
	Cut string `json:"cut,omitempty"`
	// Gate is handed up, so that a pause that found no safe point left in the
	// stage takes hold in the run.
	Gate gateState `json:"gate"`
	// Made counts the steps that the stage made; Saved is the last of them with a
	// checkpoint, 0 for none.
	Made  int `json:"made,omitempty"`
	Saved int `json:"saved,omitempty"`
}

// RLStage makes the steps of one stage, one after another: sample, then learn.
func RLStage(ctx workflow.Context, in StageInput) (StageResult, error) {
	if err := refuseAlone(ctx); err != nil {
		return StageResult{}, err
	}
	return runStage(ctx, in)
}

func runStage(ctx workflow.Context, in StageInput) (StageResult, error) {
	s := &stage{in: in, at: in.Progress}
	s.ahead = lookahead{in: &s.in, at: &s.at, gate: &s.gate}
	s.judge = stageJudge{in: &s.in, at: &s.at, gate: &s.gate}
	s.alarm = alarm{in: &s.in, at: &s.at, gate: &s.gate, show: s.show}
	if err := s.listen(ctx); err != nil {
		return StageResult{}, err
	}
	note, err := s.makeSteps(ctx)
	s.ahead.drop(ctx)
	cut := ""
	if errors.Is(err, errStop) || errors.Is(err, errSkip) {
		cut, note, err = s.recordCut(ctx, err)
	} else if s.judge.verdict != nil && s.at.NextStep < s.in.endStep() {
		cut = cutUntil
	}
	awaitHandlers(ctx)
	if err != nil {
		return StageResult{}, err
	}
	s.gate.drain(ctx)
	return StageResult{
		Policy: s.at.Policy, Filter: s.at.Filter, Step: s.at.NextStep - 1,
		Last: s.at.Last, Note: note, Cut: cut, Gate: s.gate.gateState, Made: s.at.Made, Saved: s.at.Saved,
	}, nil
}

type stage struct {
	in     StageInput
	at     StageProgress
	gate   gate
	done   bool
	inStep bool          // a step is in flight
	recent []StepNumbers // newest last, for the web UI
	ahead  lookahead
	judge  stageJudge
	alarm  alarm
}

// numRecent is the number of steps shown in the web UI.
const numRecent = 12

func (s *stage) listen(ctx workflow.Context) error {
	s.ahead.restore()
	s.gate = gate{
		gateState: s.at.Gate, scope: "stage", save: s.save, onPause: s.onPause, ref: func() run.Ref { return s.in.Run },
		others: []signalHandler{{signalGate, s.takeOver}, {signalOrder, s.takeOrder}, {signalFreeze, s.takeFreeze}},
	}
	if err := s.gate.listen(ctx); err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus,
		func() (RunStatus, error) { return s.status(), nil },
		workflow.QueryHandlerOptions{Description: "Step, numbers of the last step, pace and pause of this stage."})
}

// takeOver adopts the commands of the run. A stop of the run ends the stage, too.
func (s *stage) takeOver(ctx workflow.Context, content signalContent) error {
	var state gateOrder
	if err := content.decode(&state); err != nil {
		return err
	}
	if state.Seal != s.in.Seal {
		return errForeignSignal
	}
	if !s.gate.Stopping || state.Stopping {
		s.gate.holding, s.gate.Yield = state.holding, state.Yield
		s.gate.changed(ctx)
	}
	return nil
}

// endStep is the step after the stage's last one. An amendment may move it.
func (in *StageInput) endStep() int {
	end := in.Plan.FirstStep + in.Plan.Steps
	if in.EndBefore > 0 {
		return min(end, in.EndBefore)
	}
	return end
}

// makeSteps makes all steps. It returns a note when no problem was left, and errStop
// when a stop cut the stage short.
func (s *stage) makeSteps(ctx workflow.Context) (note string, err error) {
	if note, err = s.filter(ctx); note != "" || err != nil {
		return note, err
	}
	for made := 0; s.at.NextStep < s.in.endStep(); made++ {
		full := made >= s.in.StepsPerExecution || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
		if full && made > 0 {
			return "", s.continueAsNew(ctx)
		}
		if err := s.ahead.endBeforePause(ctx); err != nil {
			return "", err
		}
		err := s.gate.work(ctx, func(inner workflow.Context) error {
			if s.in.Window > 0 {
				s.ahead.begin(ctx) // what is sampled ahead outlives this step
			}
			return s.step(inner)
		})
		if err != nil {
			return "", err
		}
		if note, err = s.judge.afterStep(ctx); err != nil {
			return "", err
		}
		if s.judge.verdict != nil {
			return note, s.close(ctx)
		}
	}
	return "", s.close(ctx)
}

// close ends the steps of a stage.
func (s *stage) close(ctx workflow.Context) error {
	if s.gate.Save {
		if err := s.gate.checkpoint(ctx); err != nil {
			return err
		}
	}
	s.done = true
	return nil
}

// filter removes problems that the policy solves always, once per stage.
func (s *stage) filter(ctx workflow.Context) (note string, err error) {
	if !s.in.Plan.Filter || s.at.Filtered {
		return "", nil
	}
	err = s.gate.work(ctx, func(ctx workflow.Context) error {
		var rollouts *activities.Rollouts
		filter := onRollouts(ctx, s.in.Queues, "filter the problems of stage "+s.in.Plan.Name)
		in := activities.FilterInput{Run: s.in.Run, Stage: s.in.Plan.Source(), Policy: s.at.Policy}
		return withRepair(ctx, s.in.Queues, s.in.Run, func() error {
			return workflow.ExecuteActivity(filter, rollouts.FilterProblems, in).Get(ctx, &s.at.Filter)
		})
	})
	if err != nil {
		return "", err
	}
	s.at.Filtered = true
	f := s.at.Filter
	text := fmt.Sprintf("%d of %d problems removed, %d left", f.Removed, f.Problems, f.Left)
	if f.Rule != "" {
		text += ": " + f.Rule + " stay"
	}
	if f.Left == 0 {
		note = fmt.Sprintf("no problem left: the policy solves all %d", f.Problems)
		if f.Rule != "" {
			note = fmt.Sprintf("no problem left: none of %d has one of the %s", f.Problems, f.Rule)
		}
		text += "; the stage ends without a step"
	}
	return note, logEvent(ctx, s.in.Run, "filter", fmt.Sprintf("stage %s: %s", s.in.Plan.Name, text))
}

// step makes the next step and takes over its policy.
func (s *stage) step(ctx workflow.Context) error {
	n := s.at.NextStep
	in := StepInput{
		Run: s.in.Run, Stage: s.in.Plan, Step: n, NumSteps: s.in.NumSteps, Policy: s.at.Policy,
		Save: n == s.in.endStep()-1 || s.in.CheckpointEvery > 0 && n%s.in.CheckpointEvery == 0, NumShards: s.in.NumShards,
		Priority: s.in.Priority, Queues: s.in.Queues,
	}
	s.inStep = true
	ended := s.alarm.raiseWhenStalled(ctx, n)
	out, err := s.makeStep(ctx, in)
	ended()
	s.inStep = false
	if err != nil {
		s.at.Interrupted = n
		return err
	}
	s.at.NextStep++
	s.at.Made++
	if in.Save {
		s.at.Saved = n
	}
	s.at.Policy, s.at.Last = out.Policy, out.Numbers
	s.at.StepSeconds = pace(s.at.StepSeconds, out.Numbers.Seconds)
	s.recent = append(s.recent, out.Numbers)
	s.recent = s.recent[max(0, len(s.recent)-numRecent):]
	s.alarm.applyWatch(ctx, out.Watched)
	s.show(ctx)
	return s.report(ctx)
}

func (s *stage) makeStep(ctx workflow.Context, in StepInput) (StepResult, error) {
	if s.in.Window > 0 {
		return s.ahead.makeStep(ctx, in)
	}
	step := newStep(ctx, in)
	batch, err := step.sample(ctx)
	if err != nil {
		return StepResult{}, err
	}
	return step.learn(ctx, batch)
}

// reportEvery is the number of steps after which a stage tells step and reward
// as search attributes: an event each would be as much as a tenth of a step.
const reportEvery = 10

func (s *stage) report(ctx workflow.Context) error {
	if !s.in.ProgressAttributes || s.at.Made%reportEvery != 0 && s.at.NextStep < s.in.endStep() {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, progressAttributes(s.at.Last)...)
}

// save makes a checkpoint of the last finished step; before the first one, the
// stage begins with what is saved already.
func (s *stage) save(ctx workflow.Context) error {
	last := s.at.NextStep - 1
	if s.at.Made == 0 || s.at.Saved == last {
		return nil
	}
	if err := saveCheckpoint(onTrainer(ctx, s.in.Queues, fmt.Sprintf("checkpoint after step %d, as ordered", last)), s.in.Run, last); err != nil {
		return err
	}
	s.at.Saved = last
	return logEvent(ctx, s.in.Run, CommandCheckpoint, fmt.Sprintf("after step %d, as ordered", last))
}

// continueAsNew starts the next execution of the stage with an empty history.
func (s *stage) continueAsNew(ctx workflow.Context) error {
	sampled, err := s.ahead.handOver(ctx)
	if err != nil {
		return err
	}
	awaitHandlers(ctx)
	s.gate.drain(ctx)
	next := s.in
	next.Progress = s.at
	next.Progress.Ahead = sampled
	next.Progress.Gate = s.gate.gateState
	return workflow.NewContinueAsNewError(ctx, RLStage, next)
}

// recordCut writes down why the stage ended before its last step.
func (s *stage) recordCut(ctx workflow.Context, cause error) (kind, note string, err error) {
	kind, why := CommandStop, byWhom(s.gate.Reason, s.gate.By)
	if errors.Is(cause, errSkip) {
		kind, why = run.EventSkip, s.gate.SkipWhy
	}
	note = fmt.Sprintf("%v before step %d%s", cause, s.at.NextStep, why)
	return kind, note, logEvent(ctx, s.in.Run, kind, fmt.Sprintf("stage %s: %s", s.in.Plan.Name, note))
}

// stageSignal is what a stage signals to its run at a pause and at its end.
type stageSignal struct {
	holding
	// Alerts are the troubles that stand. Where only they are news, the rest says
	// nothing.
	Alerts     []string    `json:"alerts,omitempty"`
	OnlyAlerts bool        `json:"only_alerts,omitempty"`
	Last       StepNumbers `json:"last"`
	Saved      int         `json:"saved,omitempty"`
	// Yields says that the stage stands at a safe point and has saved, since the run has to
	// give up its room.
	Yields bool   `json:"yields,omitempty"`
	Seal   string `json:"seal,omitempty"`
}

// onPause writes down a pause or its end and tells the run above, whichever of
// the two was given the command.
func (s *stage) onPause(ctx workflow.Context, paused bool) error {
	s.show(ctx)
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		state := stageSignal{holding: s.gate.holding, Alerts: s.at.Alerts, Last: s.at.Last, Saved: s.at.Saved, Seal: s.in.Seal}
		state.Paused, state.Now = paused && s.gate.Paused, false
		state.Yields = paused && s.gate.Yield != nil
		// A run that is gone needs no news: its end cancels or ends this stage.
		_ = workflow.SignalExternalWorkflow(ctx, parent.ID, "", signalStageGate, state).Get(ctx, nil)
	}
	return logPause(ctx, s.in.Run, paused, s.gate.why(), fmt.Sprintf("before step %d", s.at.NextStep))
}

func (s *stage) show(ctx workflow.Context) {
	workflow.SetCurrentDetails(ctx, stageDetails(s.status(), s.recent))
}

func (s *stage) status() RunStatus {
	doing := StateTraining
	if s.done {
		doing = StateDone
	}
	step := s.at.NextStep - 1
	reason, by, since := s.gate.reasons()
	var saved *int
	if s.at.Saved > 0 {
		saved = &s.at.Saved
	}
	return RunStatus{
		Checkpoint: saved,
		RunID:      s.in.Run.RunID, State: stateOf(&s.gate, doing),
		Stage: s.in.Plan.Index, StageName: s.in.Plan.Name,
		Step: step, NumSteps: s.in.NumSteps, Last: s.at.Last,
		ETASeconds:    s.at.StepSeconds * float64(s.in.NumSteps-step),
		PolicyVersion: s.at.Policy.Version, Reason: reason, By: by, Since: since, Frozen: s.gate.Frozen, Priority: s.in.Priority, Alerts: s.at.Alerts,
	}
}
