package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// eventUntil is the kind of the event that says why a stage ends or is held by its figures.
const eventUntil = "until"

// cutUntil marks a stage that ended by its figures: forks end it there, too.
const cutUntil = "until"

// stageJudge evaluates and judges the steps of a stage.
type stageJudge struct {
	in   *StageInput
	at   *StageProgress
	gate *gate
	// verdict is what ended the stage; nil for none.
	verdict *judged
}

// judged is what became of a stage after a step.
type judged struct {
	kind, reason string
}

// afterStep evaluates and judges after a step. It returns the note of a stage that ends,
// and verdict is set then.
func (s *stageJudge) afterStep(ctx workflow.Context) (note string, err error) {
	if s.verdict, err = s.findVerdict(ctx); s.verdict == nil || err != nil {
		return "", err
	}
	return s.endEarly(ctx, *s.verdict)
}

// findVerdict makes the evaluations that are due after a step, and asks what becomes of the
// stage. It returns nil where the stage continues.
func (s *stageJudge) findVerdict(ctx workflow.Context) (*judged, error) {
	step := s.at.NextStep - 1
	for _, set := range s.in.EvalSets {
		if set.EverySteps == 0 || step%set.EverySteps != 0 {
			continue
		}
		err := s.gate.work(ctx, func(ctx workflow.Context) error {
			summary := fmt.Sprintf("evaluate policy %d on %s", s.at.Policy.Version, set.Name)
			_, err := evaluateSet(workflow.WithPriority(onRollouts(ctx, s.in.Queues, summary), priority(s.in.Priority)), s.in.Queues, s.in.Run, set.Name, s.at.Policy, LabelStep(s.at.Policy.Version))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if !s.in.Plan.Judged {
		return nil, nil //nolint:nilnil // nothing is judged
	}
	var control *activities.Control
	var out run.StageVerdict
	in := activities.JudgeStageInput{
		Run: s.in.Run, Stage: s.in.Plan, Step: step, First: s.firstStep(), Last: s.at.NextStep >= s.in.endStep(),
	}
	if err := doControl(ctx, fmt.Sprintf("step %d: judge the stage", step), control.JudgeStage, in, &out); err != nil {
		return nil, err
	}
	if out.Kind == "" {
		return nil, nil //nolint:nilnil // the stage continues
	}
	return s.applyVerdict(ctx, step, out)
}

// applyVerdict writes down a verdict and holds the stage where the verdict asks for it.
func (s *stageJudge) applyVerdict(ctx workflow.Context, step int, v run.StageVerdict) (*judged, error) {
	verb := "ends after"
	if !v.End {
		verb = "is held after"
	}
	text := fmt.Sprintf("stage %s %s step %d by %s: %s", s.in.Plan.Name, verb, step, v.Kind, v.Reason)
	if err := logEvent(ctx, s.in.Run, eventUntil, text); err != nil {
		return nil, err
	}
	if v.Pause && !s.gate.Paused && !s.gate.Stopping {
		now := workflow.Now(ctx)
		s.gate.holding = holding{Paused: true, Reason: fmt.Sprintf("%s: %s", v.Kind, v.Reason), By: byWatch, Since: &now}
		s.gate.changed(ctx)
	}
	if !v.End {
		return nil, nil //nolint:nilnil // the stage continues when it is resumed
	}
	return &judged{kind: string(v.Kind), reason: v.Reason}, nil
}

// firstStep is the first step that the run itself makes of the stage.
func (s *stageJudge) firstStep() int { return s.at.NextStep - s.at.Made }

// endEarly saves the last step of a stage that ends before its planned end, as the planned
// last step would be, and returns the note of the stage.
func (s *stageJudge) endEarly(ctx workflow.Context, j judged) (string, error) {
	last := s.at.NextStep - 1
	if s.at.Saved != last {
		if err := saveCheckpoint(onTrainer(ctx, s.in.Queues, fmt.Sprintf("checkpoint after step %d, the last of its stage", last)), s.in.Run, last); err != nil {
			return "", err
		}
		s.at.Saved = last
	}
	return fmt.Sprintf("%s after step %d: %s", j.kind, last, j.reason), nil
}
