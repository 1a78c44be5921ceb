package activities

import (
	"context"
	"errors"
)

type Control struct{}
type Trainer struct{}
type Rollouts struct{}

var errStub = errors.New("stub")

func (*Control) OpenRun(context.Context, RunInput) (r RunPlan, err error) { return r, errStub }
func (*Control) PrepareData(context.Context, PrepareDataInput) (r PrepareDataResult, err error) {
	return r, errStub
}
func (*Control) SelectProblems(context.Context, SelectProblemsInput) (r SelectProblemsResult, err error) {
	return r, errStub
}
func (*Control) BuildBatch(context.Context, BuildBatchInput) (r BuildBatchResult, err error) {
	return r, errStub
}
func (*Control) LogStep(context.Context, LogStepInput) error   { return errStub }
func (*Control) LogEvent(context.Context, LogEventInput) error { return errStub }
func (*Control) FinishRun(context.Context, FinishRunInput) (r FinishRunResult, err error) {
	return r, errStub
}
func (*Trainer) TrainSFT(context.Context, TrainSFTInput) (r TrainSFTResult, err error) {
	return r, errStub
}
func (*Trainer) PublishPolicy(context.Context, PublishInput) (r Policy, err error) { return r, errStub }
func (*Trainer) TrainStep(context.Context, TrainStepInput) (r TrainStepResult, err error) {
	return r, errStub
}
func (*Rollouts) SampleGroups(context.Context, SampleGroupsInput) (r SampleGroupsResult, err error) {
	return r, errStub
}
func (*Rollouts) EvaluatePolicy(context.Context, EvaluateInput) (r EvalResult, err error) {
	return r, errStub
}
func (*Rollouts) FilterProblems(context.Context, FilterInput) (r FilterResult, err error) {
	return r, errStub
}
