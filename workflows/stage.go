package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
)

// StageInput is one stage of a run and how far it has come.
type StageInput struct {
	Run             activities.RunRef    `json:"run"`
	Plan            activities.StagePlan `json:"plan"`
	NumSteps        int                  `json:"num_steps"` // of the run
	CheckpointEvery int                  `json:"checkpoint_every"`
	NumShards       int                  `json:"num_shards"`
	// StepsPerExecution is the number of steps before the stage continues as new.
	StepsPerExecution int  `json:"steps_per_execution"`
	SearchAttributes  bool `json:"search_attributes,omitempty"`
	// Progress is all that crosses continue-as-new.
	Progress StageProgress `json:"progress"`
}

// StageProgress is how far a stage has come.
type StageProgress struct {
	// NextStep is counted through the run.
	NextStep int               `json:"next_step"`
	Policy   activities.Policy `json:"policy"`
	Gate     gateState         `json:"gate"`
	// Filtered is true once the stage's problems were filtered.
	Filtered bool                    `json:"filtered,omitempty"`
	Filter   activities.FilterResult `json:"filter"`
	Last     StepNumbers             `json:"last"`
	// StepSeconds is the running mean of step times.
	StepSeconds float64 `json:"step_seconds"`
}

// StageResult is what the run needs of a finished stage.
type StageResult struct {
	Policy activities.Policy       `json:"policy"`
	Filter activities.FilterResult `json:"filter"`
	// Step is the last finished step, counted through the run.
	Step int         `json:"step"`
	Last StepNumbers `json:"last"`
	// Note says why the stage ended before its last step; empty when it did not.
	Note string `json:"note,omitempty"`
	// Gate is handed up, so that a pause that found no safe point left in the
	// stage takes hold in the run.
	Gate gateState `json:"gate"`
}

// RLStage runs the steps of one stage, each as a child RLStep.
func RLStage(ctx workflow.Context, in StageInput) (StageResult, error) {
	s := &stage{in: in, at: in.Progress}
	if err := s.setup(ctx); err != nil {
		return StageResult{}, err
	}
	note, err := s.run(ctx)
	if errors.Is(err, errStop) {
		note, err = s.stopped(ctx)
	}
	settle(ctx)
	if err != nil {
		return StageResult{}, err
	}
	s.gate.drain(ctx)
	return StageResult{
		Policy: s.at.Policy, Filter: s.at.Filter, Step: s.at.NextStep - 1,
		Last: s.at.Last, Note: note, Gate: s.gate.gateState,
	}, nil
}

type stage struct {
	in     StageInput
	at     StageProgress
	gate   gate
	done   bool
	recent []StepNumbers // newest last, for the web UI
}

// numRecent is the number of steps shown in the web UI.
const numRecent = 12

func (s *stage) setup(ctx workflow.Context) error {
	s.gate = gate{gateState: s.at.Gate, scope: "stage", peer: signalGate, fromPeer: s.takeOver}
	err := s.gate.listen(ctx, map[string]string{
		CommandPause:  "Pauses the run after the current step. Argument: {\"reason\": \"...\"}, optional.",
		CommandResume: "Lets the paused run go on.",
		CommandStop:   "Ends this stage after the current step; the run goes on with its evaluation and the next stage.",
	})
	if err != nil {
		return err
	}
	return workflow.SetQueryHandlerWithOptions(ctx, QueryStatus,
		func() (RunStatus, error) { return s.status(), nil },
		workflow.QueryHandlerOptions{Description: "Step, numbers of the last step, pace and pause of this stage."})
}

// takeOver adopts what the run was told; its stop ends the stage, too.
func (s *stage) takeOver(state gateState) {
	if !s.gate.Stopping {
		s.gate.gateState = state
	}
}

// run returns a note when no problem was left, and errStop when a stop cut the
// stage short.
func (s *stage) run(ctx workflow.Context) (note string, err error) {
	if note, err = s.filter(ctx); note != "" || err != nil {
		return note, err
	}
	end := s.in.Plan.FirstStep + s.in.Plan.Steps
	for made := 0; s.at.NextStep < end; made++ {
		full := made >= s.in.StepsPerExecution || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
		if full && made > 0 {
			return "", s.continueAsNew(ctx)
		}
		if err := s.gate.pass(ctx, s.onPause); err != nil {
			return "", err
		}
		if err := s.step(ctx, s.at.NextStep == end-1); err != nil {
			return "", err
		}
	}
	s.done = true
	return "", nil
}

// filter removes problems that the policy solves always, once per stage.
func (s *stage) filter(ctx workflow.Context) (note string, err error) {
	if !s.in.Plan.Filter || s.at.Filtered {
		return "", nil
	}
	if err := s.gate.pass(ctx, s.onPause); err != nil {
		return "", err
	}
	var rollouts *activities.Rollouts
	err = workflow.ExecuteActivity(onRollouts(ctx, "filter of stage "+s.in.Plan.Name), rollouts.FilterProblems,
		activities.FilterInput{Run: s.in.Run, Stage: s.in.Plan.Index, Policy: s.at.Policy}).Get(ctx, &s.at.Filter)
	if err != nil {
		return "", err
	}
	s.at.Filtered = true
	f := s.at.Filter
	text := fmt.Sprintf("%d of %d problems removed, %d left", f.Removed, f.Problems, f.Left)
	if f.Left == 0 {
		note = fmt.Sprintf("no problem left: the policy solves all %d", f.Problems)
		text += "; the stage ends without a step"
	}
	return note, logEvent(ctx, s.in.Run, "filter", fmt.Sprintf("stage %s: %s", s.in.Plan.Name, text))
}

// step runs the next step as a child and takes over its policy.
func (s *stage) step(ctx workflow.Context, last bool) error {
	n := s.at.NextStep
	attributes := searchAttributes(s.in.SearchAttributes, s.in.Run.RunID, s.in.Plan.Name, n)
	child := asChild(ctx, StepWorkflowID(s.in.Run.RunID, n),
		fmt.Sprintf("step %d of %d, stage %s, policy %d", n, s.in.NumSteps, s.in.Plan.Name, s.at.Policy.Version), attributes)
	var out StepResult
	err := workflow.ExecuteChildWorkflow(child, RLStep, StepInput{
		Run: s.in.Run, Stage: s.in.Plan, Step: n, NumSteps: s.in.NumSteps, Policy: s.at.Policy,
		Save: last || s.in.CheckpointEvery > 0 && n%s.in.CheckpointEvery == 0, NumShards: s.in.NumShards,
	}).Get(child, &out)
	if err != nil {
		return err
	}
	s.at.NextStep++
	s.at.Policy, s.at.Last = out.Policy, out.Numbers
	s.at.StepSeconds = pace(s.at.StepSeconds, out.Numbers.Seconds)
	s.recent = append(s.recent, out.Numbers)
	s.recent = s.recent[max(0, len(s.recent)-numRecent):]
	s.show(ctx)
	return nil
}

// continueAsNew starts the next execution of the stage with an empty history.
func (s *stage) continueAsNew(ctx workflow.Context) error {
	settle(ctx)
	s.gate.drain(ctx)
	next := s.in
	next.Progress = s.at
	next.Progress.Gate = s.gate.gateState
	return workflow.NewContinueAsNewError(ctx, RLStage, next)
}

func (s *stage) stopped(ctx workflow.Context) (string, error) {
	note := fmt.Sprintf("stopped before step %d%s", s.at.NextStep, because(s.gate.Reason))
	return note, logEvent(ctx, s.in.Run, "stop", fmt.Sprintf("stage %s: %s", s.in.Plan.Name, note))
}

// onPause writes down a pause or its end and tells the run above, whichever of
// the two was given the command.
func (s *stage) onPause(ctx workflow.Context, paused bool) error {
	s.show(ctx)
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		state := gateState{Paused: paused, Reason: s.gate.Reason}
		// A run that is gone needs no news: its end cancels or ends this stage.
		_ = workflow.SignalExternalWorkflow(ctx, parent.ID, "", signalStageGate, state).Get(ctx, nil)
	}
	return logPause(ctx, s.in.Run, paused, s.gate.Reason, fmt.Sprintf("before step %d", s.at.NextStep))
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
	return RunStatus{
		RunID: s.in.Run.RunID, State: stateOf(&s.gate, doing),
		Stage: s.in.Plan.Index, StageName: s.in.Plan.Name,
		Step: step, NumSteps: s.in.NumSteps, Last: s.at.Last,
		ETASeconds:    s.at.StepSeconds * float64(s.in.NumSteps-step),
		PolicyVersion: s.at.Policy.Version, Reason: s.gate.Reason,
	}
}
