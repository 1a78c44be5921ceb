package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/fault"
	"temper/internal/placement"
	"temper/internal/run"
)

// eventUntil is the kind of the event that says why a stage ends or is held by its figures.
const eventUntil = "until"

// cutUntil marks a stage that ended by its figures: forks end it there, too.
const cutUntil = "until"

// evaluateSet measures a policy on a set of eval.sets, with the workers of the queues.
func evaluateSet(ctx workflow.Context, q placement.Queues, ref run.Ref, set string, p run.Policy, label string) (run.Evaluation, error) {
	var rollouts *activities.Rollouts
	var out run.Evaluation
	in := activities.EvaluateInput{Run: ref, Set: set, Policy: p, Label: label}
	err := mending(ctx, q, ref, func() error { return workflow.ExecuteActivity(ctx, rollouts.EvaluatePolicy, in).Get(ctx, &out) })
	return out, err
}

// measuring is what a run measures beside the held-out problems of its stages.
type measuring struct{ *runFlow }

// evaluateSets measures the current policy on every set of eval.sets, unless that was
// the last thing that was measured.
func (r measuring) evaluateSets(ctx workflow.Context) error {
	if len(r.plan.EvalSets) == 0 || r.setsAt != nil && *r.setsAt == r.policy.Version {
		return nil
	}
	for _, set := range r.plan.EvalSets {
		err := r.work(ctx, StateEvaluating, func(ctx workflow.Context) error {
			summary := fmt.Sprintf("evaluate policy %d on %s", r.policy.Version, set.Name)
			_, err := evaluateSet(r.onRollouts(ctx, summary), r.room.queues(), r.ref, set.Name, r.policy, LabelStep(r.policy.Version))
			return err
		})
		if err != nil {
			return err
		}
	}
	version := r.policy.Version
	r.setsAt = &version
	return nil
}

// passGate ends a run whose policy after SFT is one that RL cannot teach.
func (r measuring) passGate(ctx workflow.Context) error {
	if !r.plan.Gate || len(r.reports) == 0 {
		return nil
	}
	var control *activities.Control
	var out run.GateResult
	in := activities.JudgeGateInput{Run: r.ref, Before: r.reports[0].Before}
	if err := bookkeep(ctx, "judge the policy after SFT", control.JudgeGate, in, &out); err != nil {
		return err
	}
	if out.Passed {
		return logEvent(ctx, r.ref, "gate", "the policy after SFT passes: "+out.Text)
	}
	text := "the policy after SFT does not pass sft.gate: " + out.Text + "; train it longer or on other dialogues, or fork this run from step 0 with other limits"
	if err := logEvent(ctx, r.ref, "gate", text); err != nil {
		return err
	}
	return temporal.NewNonRetryableApplicationError(text, string(fault.InvalidConfig), nil)
}

// judging is the judge of a stage's steps.
type judging struct{ *stage }

// judged is what became of a stage after a step.
type judged struct {
	kind, reason string
}

// judge evaluates and judges after a step. It returns the note of a stage that ends.
func (s judging) judge(ctx workflow.Context) (note string, err error) {
	if s.verdict, err = s.afterStep(ctx); s.verdict == nil || err != nil {
		return "", err
	}
	if note, err = s.endEarly(ctx, *s.verdict); err != nil {
		return "", err
	}
	return note, s.close(ctx)
}

// afterStep makes the evaluations that are due after a step, and asks what becomes of the
// stage. It returns nil where the stage goes on.
func (s judging) afterStep(ctx workflow.Context) (*judged, error) {
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
		Run: s.in.Run, Stage: s.in.Plan, Step: step, First: s.firstStep(), Last: s.at.NextStep >= s.endStep(),
	}
	if err := bookkeep(ctx, fmt.Sprintf("step %d: judge the stage", step), control.JudgeStage, in, &out); err != nil {
		return nil, err
	}
	if out.Kind == "" {
		return nil, nil //nolint:nilnil // the stage goes on
	}
	return s.applyVerdict(ctx, step, out)
}

// applyVerdict writes down a verdict and holds the stage where it says so.
func (s judging) applyVerdict(ctx workflow.Context, step int, v run.StageVerdict) (*judged, error) {
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
		return nil, nil //nolint:nilnil // the stage goes on when it is resumed
	}
	return &judged{kind: string(v.Kind), reason: v.Reason}, nil
}

// firstStep is the first step that the run itself makes of the stage.
func (s judging) firstStep() int { return s.at.NextStep - s.at.Made }

// endEarly saves the last step of a stage that ends before its planned end, as the planned
// last step would be, and returns the note of the stage.
func (s judging) endEarly(ctx workflow.Context, j judged) (string, error) {
	last := s.at.NextStep - 1
	if s.at.Saved != last {
		if err := saveCheckpoint(onTrainer(ctx, s.in.Queues, fmt.Sprintf("checkpoint after step %d, the last of its stage", last)), s.in.Run, last); err != nil {
			return "", err
		}
		s.at.Saved = last
	}
	return fmt.Sprintf("%s after step %d: %s", j.kind, last, j.reason), nil
}
