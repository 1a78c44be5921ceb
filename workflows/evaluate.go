package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
	"temper/internal/run"
)

// EvaluateRunInput names a run and one of its published policies.
type EvaluateRunInput struct {
	RunID string `json:"run_id"`
	// Version of the policy; nil takes the one of the run's last planned step.
	Version *int64 `json:"version,omitempty"`
	// Final says that the run has ended with this policy, so that the result is the
	// run's final one. Otherwise it is labelled by the policy's step.
	Final bool `json:"final,omitempty"`
}

// EvaluateRunResult holds one evaluation per stage.
type EvaluateRunResult struct {
	RunID  string           `json:"run_id"`
	Policy run.Policy       `json:"policy"`
	Stages []run.Evaluation `json:"stages"`
	// Sets holds one for each set of eval.sets.
	Sets []run.Evaluation `json:"sets,omitempty"`
}

// EvaluateRun measures a published policy on the held-out problems of every
// stage. It opens the stored run (OpenRun without a configuration) and adds the
// evaluations to it.
func EvaluateRun(ctx workflow.Context, in EvaluateRunInput) (EvaluateRunResult, error) {
	out := EvaluateRunResult{RunID: in.RunID}
	if err := evaluateRun(ctx, in, &out); err != nil {
		return EvaluateRunResult{}, asFailure(err)
	}
	return out, nil
}

func evaluateRun(ctx workflow.Context, in EvaluateRunInput, out *EvaluateRunResult) error {
	var control *activities.Control
	var plan run.Plan
	err := doControl(ctx, "open run "+in.RunID, control.OpenRun, run.Input{RunID: in.RunID}, &plan)
	if err != nil {
		return err
	}
	version := int64(plan.NumSteps())
	if in.Version != nil {
		version = *in.Version
	}
	ref := run.Ref{RunID: plan.RunID, Config: plan.Config}
	// Publishing a published version again only looks it up.
	var trainer *activities.Trainer
	err = workflow.ExecuteActivity(lookup(ctx, fmt.Sprintf("publish policy %d", version)), trainer.PublishPolicy,
		activities.PublishInput{Run: ref, Step: int(version)}).Get(ctx, &out.Policy)
	if err != nil {
		return err
	}
	label := LabelFinal
	if !in.Final {
		label = LabelStep(version)
	}
	for _, stage := range plan.Stages {
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("policy %d on stage %s", version, stage.Name))
		result, err := evaluateStage(ctx, activities.EvaluateInput{Run: ref, Stage: stage.Index, Policy: out.Policy, Label: label}, stage.Name)
		if err != nil {
			return err
		}
		out.Stages = append(out.Stages, result)
	}
	for _, set := range plan.EvalSets {
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("policy %d on %s", version, set.Name))
		result, err := evaluateSet(onRollouts(ctx, placement.Queues{}, fmt.Sprintf("policy %d on %s", version, set.Name)), placement.Queues{}, ref, set.Name, out.Policy, LabelStep(version))
		if err != nil {
			return err
		}
		out.Sets = append(out.Sets, result)
	}
	return nil
}

func evaluateStage(ctx workflow.Context, in activities.EvaluateInput, stage string) (run.Evaluation, error) {
	var rollouts *activities.Rollouts
	var out run.Evaluation
	ctx = onRollouts(ctx, placement.Queues{}, fmt.Sprintf("policy %d on stage %s", in.Policy.Version, stage))
	err := withRepair(ctx, placement.Queues{}, in.Run, func() error { return workflow.ExecuteActivity(ctx, rollouts.EvaluatePolicy, in).Get(ctx, &out) })
	return out, err
}
