package activities

import (
	"time"

	"temper/internal/learner"
	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/ablation"
	"temper/internal/run/replay"
	"temper/internal/run/retrain"
	"temper/internal/sampling"
)

// Inputs of the activities, by the names that workflows use. Each is the input of the
// function that the activity calls.
type (
	AmendRunInput        = run.AmendInput
	FinishRunInput       = run.FinishInput
	LogStepInput         = run.StepInput
	TrainSFTInput        = learner.SFTInput
	TrainStepInput       = learner.StepInput
	PublishInput         = learner.PublishInput
	SaveCheckpointInput  = learner.SaveInput
	SelectProblemsInput  = sampling.SelectInput
	SampleGroupsInput    = sampling.GroupsInput
	BuildBatchInput      = sampling.BatchInput
	EvaluateInput        = sampling.EvaluateInput
	FilterInput          = sampling.FilterInput
	JudgeStageInput      = run.StageInput
	JudgeGateInput       = run.GateInput
	MendInput            = replay.MendInput
	PlanRetrainInput     = retrain.PlanInput
	JudgeRetrainInput    = retrain.JudgeInput
	PlanAblationInput    = ablation.Input
	FindAblationRunInput = ablation.FindInput
)

// PrepareDataInput asks for problem sets, dialogues and the tokenizer of a run.
type PrepareDataInput struct{ Run run.Ref }

// SelectProblemsResult lists problem ids, unique within the step.
type SelectProblemsResult struct {
	ProblemIDs []string `json:"problem_ids"`
}

// RaiseAlertInput is an alert of a run, at a time.
type RaiseAlertInput struct {
	Run      run.Ref     `json:"run"`
	Stage    string      `json:"stage"`
	NumSteps int         `json:"num_steps"`
	Alert    rules.Alert `json:"alert"`
	Time     time.Time   `json:"time"`
}

// CheckForkInput asks whether a fork would start.
type CheckForkInput struct {
	Input run.Input `json:"input"`
	// Hold keeps the checkpoint until the fork has begun.
	Hold bool `json:"hold,omitempty"`
}

// CheckForkResult is the step that the fork would start from, and the amendments
// that hold in it, one line each.
type CheckForkResult struct {
	Step      int      `json:"step"`
	Inherited []string `json:"inherited,omitempty"`
}

// CollectAblationInput names an ablation.
type CollectAblationInput struct {
	ID string `json:"id"`
}
