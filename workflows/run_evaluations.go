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

// Labels of the evaluations of a stage.
const (
	LabelBefore = "before" // the policy after SFT, before any RL
	LabelAfter  = "after"  // the policy at the end of the stage
	LabelFinal  = "final"  // the policy at the end of the run
)

// LabelStep labels the evaluation on demand of a policy, by the step that published it.
func LabelStep(version int64) string { return fmt.Sprintf("step-%06d", version) }

// evaluations measure the policies of a run.
type evaluations struct {
	at      *progress
	state   *runState
	workers *runWorkers
	// setsOf is the version that was measured last on eval.sets; nil for none.
	setsOf *int64
}

// ofStage measures the current policy on the held-out problems of stage i.
func (e *evaluations) ofStage(ctx workflow.Context, i int, label string) error {
	plan := e.at.reports[i].Plan
	var out run.Evaluation
	err := e.state.work(ctx, StateEvaluating, func(ctx workflow.Context) error {
		var rollouts *activities.Rollouts
		summary := fmt.Sprintf("evaluate policy %d on stage %s, %s", e.at.policy.Version, plan.Name, label)
		in := activities.EvaluateInput{Run: e.at.ref, Stage: plan.Source(), Policy: e.at.policy, Label: label}
		return withRepair(ctx, e.workers.room.queues(), e.at.ref, func() error {
			return workflow.ExecuteActivity(e.workers.onRollouts(ctx, summary), rollouts.EvaluatePolicy, in).Get(ctx, &out)
		})
	})
	if err != nil {
		return err
	}
	out.Label = label // marks the report as measured
	report := &e.at.reports[i]
	switch label {
	case LabelBefore:
		report.Before = out
	case LabelAfter:
		report.After = out
	case LabelFinal:
		report.Final = out
	}
	e.state.show(ctx)
	return nil
}

// final measures what the run's policy has kept of the earlier stages.
func (e *evaluations) final(ctx workflow.Context) error {
	for i := range e.at.reports {
		if after := e.at.reports[i].After; after.Label != "" && after.PolicyVersion == e.at.policy.Version {
			e.at.reports[i].Final = after
			e.at.reports[i].Final.Label = LabelFinal
			continue
		}
		if err := e.ofStage(ctx, i, LabelFinal); err != nil {
			return err
		}
	}
	return nil
}

// ofSets measures the current policy on every set of eval.sets, unless that was
// the last thing that was measured.
func (e *evaluations) ofSets(ctx workflow.Context) error {
	if len(e.at.plan.EvalSets) == 0 || e.setsOf != nil && *e.setsOf == e.at.policy.Version {
		return nil
	}
	for _, set := range e.at.plan.EvalSets {
		err := e.state.work(ctx, StateEvaluating, func(ctx workflow.Context) error {
			summary := fmt.Sprintf("evaluate policy %d on %s", e.at.policy.Version, set.Name)
			_, err := evaluateSet(e.workers.onRollouts(ctx, summary), e.workers.room.queues(), e.at.ref, set.Name, e.at.policy, LabelStep(e.at.policy.Version))
			return err
		})
		if err != nil {
			return err
		}
	}
	version := e.at.policy.Version
	e.setsOf = &version
	return nil
}

// passGate ends a run whose policy after SFT is one that RL cannot teach.
func (e *evaluations) passGate(ctx workflow.Context) error {
	if !e.at.plan.Gate || len(e.at.reports) == 0 {
		return nil
	}
	var control *activities.Control
	var out run.GateResult
	in := activities.JudgeGateInput{Run: e.at.ref, Before: e.at.reports[0].Before}
	if err := doControl(ctx, "judge the policy after SFT", control.JudgeGate, in, &out); err != nil {
		return err
	}
	if out.Passed {
		return logEvent(ctx, e.at.ref, "gate", "the policy after SFT passes: "+out.Text)
	}
	text := "the policy after SFT does not pass sft.gate: " + out.Text + "; train it longer or on other dialogues, or fork this run from step 0 with other limits"
	if err := logEvent(ctx, e.at.ref, "gate", text); err != nil {
		return err
	}
	return temporal.NewNonRetryableApplicationError(text, string(fault.InvalidConfig), nil)
}

// evaluateSet measures a policy on a set of eval.sets, with the workers of the queues.
func evaluateSet(ctx workflow.Context, q placement.Queues, ref run.Ref, set string, p run.Policy, label string) (run.Evaluation, error) {
	var rollouts *activities.Rollouts
	var out run.Evaluation
	in := activities.EvaluateInput{Run: ref, Set: set, Policy: p, Label: label}
	err := withRepair(ctx, q, ref, func() error { return workflow.ExecuteActivity(ctx, rollouts.EvaluatePolicy, in).Get(ctx, &out) })
	return out, err
}
