package activities

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.temporal.io/sdk/activity"

	"temper/internal/rules"
	"temper/internal/run"
	"temper/internal/run/ablation"
	"temper/internal/run/retrain"
	"temper/internal/run/setup"
	"temper/internal/sampling"
)

// visitor is the type of the workflow that reads a stored run beside its owner.
const visitor = "EvaluateRun"

// OpenRun validates the configuration, claims the run id for the workflow
// execution and freezes the configuration; see setup.Open. Errors: InvalidConfig,
// RunExists.
func (c *Control) OpenRun(ctx context.Context, in run.Input) (run.Plan, error) {
	defer keepAlive(ctx)()
	info := activity.GetInfo(ctx)
	plan, err := setup.Open(ctx, c.Store, in, setup.Claim{
		Owner: info.WorkflowExecution.RunID, Workflow: info.WorkflowExecution.ID, Namespace: info.Namespace,
		Find: c.Find, Visits: info.WorkflowType != nil && info.WorkflowType.Name == visitor,
		SearchAttributes: c.SearchAttributes, At: info.StartedTime,
	})
	plan.NumRolloutShards = c.RolloutShards
	return plan, toTemporal(err)
}

// CheckFork finds out whether a fork would start, and from which step; see
// setup.CheckFork. Errors: InvalidConfig.
func (c *Control) CheckFork(ctx context.Context, in CheckForkInput) (CheckForkResult, error) {
	defer keepAlive(ctx)()
	found, err := setup.CheckFork(ctx, c.Store, in.Input, in.Hold)
	out := CheckForkResult{Step: found.Step}
	for _, a := range found.Inherited {
		out.Inherited = append(out.Inherited, a.Order())
	}
	return out, toTemporal(err)
}

// AmendRun adds an amendment to a run's configuration; see setup.AddAmendment.
// Errors: InvalidConfig.
func (c *Control) AmendRun(ctx context.Context, in AmendRunInput) (run.Amended, error) {
	defer keepAlive(ctx)()
	out, err := setup.AddAmendment(ctx, c.Store, in)
	return out, toTemporal(err)
}

// PrepareData makes or imports all data of a run. Errors: Dataset, InvalidConfig.
func (c *Control) PrepareData(ctx context.Context, in PrepareDataInput) (run.Prepared, error) {
	var doing atomic.Value
	doing.Store("")
	ctx, stop := heartbeat(ctx, func() string { return doing.Load().(string) })
	defer stop()
	out, err := setup.Prepare(ctx, c.Store, in.Run, func(what string) { doing.Store(what) })
	out.Files = nil // the store has them; no workflow asks
	return out, toTemporal(err)
}

// SelectProblems names the problems of a step.
func (c *Control) SelectProblems(ctx context.Context, in SelectProblemsInput) (SelectProblemsResult, error) {
	defer keepAlive(ctx)()
	ids, err := c.selector.Select(ctx, c.Store, in)
	return SelectProblemsResult{ProblemIDs: ids}, toTemporal(err)
}

// BuildBatch turns the groups of a step into the batch that the trainer gets.
func (c *Control) BuildBatch(ctx context.Context, in BuildBatchInput) (run.BuiltBatch, error) {
	defer keepAlive(ctx)()
	out, err := sampling.BuildBatch(ctx, c.Store, in)
	return out, toTemporal(err)
}

// LogStep writes the record of a step, tests the step by the rules of the run's watch, and
// sends new alerts to the outside.
func (c *Control) LogStep(ctx context.Context, in LogStepInput) (run.Watched, error) {
	defer keepAlive(ctx)()
	cfg, err := c.configs.Read(ctx, c.Store, in.Run)
	if err != nil {
		return run.Watched{}, toTemporal(err)
	}
	out, err := run.LogStep(ctx, c.Store, cfg, in)
	if err == nil {
		err = c.Chain.AddStep(ctx, c.Store, in)
	}
	if err == nil && len(out.Alerts) > 0 && c.Notify != nil { // at the end, or each attempt tells them
		c.Notify(ctx, run.Notice{RunID: in.Run.RunID, Stage: in.StageName, Step: in.Step, NumSteps: in.NumSteps, Alerts: out.Alerts})
	}
	return out, toTemporal(err)
}

// JudgeStage says what becomes of a stage after a step; see run.JudgeStage.
func (c *Control) JudgeStage(ctx context.Context, in JudgeStageInput) (run.StageVerdict, error) {
	defer keepAlive(ctx)()
	out, err := run.JudgeStage(ctx, c.Store, in)
	return out, toTemporal(err)
}

// JudgeGate says whether RL may begin after the supervised updates; see run.JudgeGate.
func (c *Control) JudgeGate(ctx context.Context, in JudgeGateInput) (run.GateResult, error) {
	defer keepAlive(ctx)()
	out, err := run.JudgeGate(ctx, c.Store, in)
	return out, toTemporal(err)
}

// RaiseAlert writes an alert that no step has raised into the run's event log, and sends it
// to the outside.
func (c *Control) RaiseAlert(ctx context.Context, in RaiseAlertInput) error {
	defer keepAlive(ctx)()
	event := run.Event{Run: in.Run, Time: in.Time, Kind: run.EventAlert, Text: in.Alert.Text, ID: fmt.Sprintf("watch/%d/%s", in.Alert.Step, in.Alert.Rule)}
	if err := run.LogEvent(ctx, c.Store, event); err != nil {
		return toTemporal(err)
	}
	if c.Notify != nil {
		c.Notify(ctx, run.Notice{RunID: in.Run.RunID, Stage: in.Stage, Step: in.Alert.Step, NumSteps: in.NumSteps, Alerts: []rules.Alert{in.Alert}})
	}
	return nil
}

// LogEvent writes one entry of the run's event log, once.
func (c *Control) LogEvent(ctx context.Context, in run.Event) error {
	defer keepAlive(ctx)()
	if activity.IsActivity(ctx) {
		info := activity.GetInfo(ctx)
		in.ID = info.WorkflowType.Name + "/" + info.ActivityID
	}
	return toTemporal(run.LogEvent(ctx, c.Store, in))
}

// FinishRun writes the series and the summary of the run.
func (c *Control) FinishRun(ctx context.Context, in FinishRunInput) (run.FinishResult, error) {
	defer keepAlive(ctx)()
	peak := int64(0)
	if c.PeakRSS != nil {
		peak = c.PeakRSS()
	}
	if err := run.WarnOfNoUpdate(ctx, c.Store, in); err != nil {
		return run.FinishResult{}, toTemporal(err)
	}
	out, err := run.Finish(ctx, c.Store, in, &c.Chain, peak)
	return out, toTemporal(err)
}

// PlanRetrain finds new problems and plans a re-training on them; see
// retrain.MakePlan. Errors: InvalidConfig, Dataset.
func (c *Control) PlanRetrain(ctx context.Context, in PlanRetrainInput) (retrain.Plan, error) {
	defer keepAlive(ctx)()
	plan, err := retrain.MakePlan(ctx, c.Store, in)
	return plan, toTemporal(err)
}

// JudgeRetrain applies the gate to the policy of a re-training; see retrain.Judge.
func (c *Control) JudgeRetrain(ctx context.Context, in JudgeRetrainInput) (retrain.Outcome, error) {
	defer keepAlive(ctx)()
	out, err := retrain.Judge(ctx, c.Store, in)
	return out, toTemporal(err)
}

// LogRetrain writes one entry of a schedule's event log.
func (c *Control) LogRetrain(ctx context.Context, in retrain.Event) error {
	defer keepAlive(ctx)()
	return toTemporal(retrain.LogEvent(ctx, c.Store, in))
}

// PlanAblation plans the runs of an ablation; see ablation.MakePlan. Errors:
// InvalidConfig, RunExists.
func (c *Control) PlanAblation(ctx context.Context, in PlanAblationInput) (ablation.Plan, error) {
	defer keepAlive(ctx)()
	plan, err := ablation.MakePlan(ctx, c.Store, in)
	return plan, toTemporal(err)
}

// FindAblationRun says what the store has of a run of an ablation; see ablation.Find.
// Errors: RunExists.
func (c *Control) FindAblationRun(ctx context.Context, in FindAblationRunInput) (ablation.Stored, error) {
	defer keepAlive(ctx)()
	out, err := ablation.Find(ctx, c.Store, in)
	return out, toTemporal(err)
}

// RecordAblationRun stores how a run of an ablation ended.
func (c *Control) RecordAblationRun(ctx context.Context, in ablation.Ended) error {
	defer keepAlive(ctx)()
	return toTemporal(ablation.RecordEnd(ctx, c.Store, in))
}

// CollectAblation stores the figures of an ablation; see ablation.StoreResult.
func (c *Control) CollectAblation(ctx context.Context, in CollectAblationInput) (ablation.Outcome, error) {
	defer keepAlive(ctx)()
	out, err := ablation.StoreResult(ctx, c.Store, in.ID)
	return out, toTemporal(err)
}
