package workflows

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/run"
)

// The functions below are the client's side of the contract: what the command
// line and the dashboard do. A plain Temporal client can do the same with the
// names of this package and JSON.

// ErrRunning means that a run of that id is open.
var ErrRunning = errors.New("is going on already")

// Start starts a run; in.RunID must be set. A run that has ended is refused by
// the run itself (RunExists). Errors: ErrRunning.
func Start(ctx context.Context, c client.Client, in run.Input) (client.WorkflowRun, error) {
	if in.RunID == "" {
		return nil, errors.New("start a run: run id is empty")
	}
	if err := in.CheckSize(); err != nil {
		return nil, fmt.Errorf("start run %s: %w", in.RunID, err)
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       RunWorkflowID(in.RunID),
		TaskQueue:                                QueueControl,
		WorkflowTaskTimeout:                      taskTimeout,
		StaticSummary:                            "run " + in.RunID,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Priority:                                 priority(in.Priority),
	}, TypeRun, in)
	var running *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &running) {
		return nil, fmt.Errorf("run %s %w: choose another run id or see its status", in.RunID, ErrRunning)
	}
	if err != nil {
		return nil, fmt.Errorf("start run %s: %w", in.RunID, err)
	}
	return run, nil
}

// Evaluate starts the evaluation of a finished run.
func Evaluate(ctx context.Context, c client.Client, in EvaluateRunInput) (client.WorkflowRun, error) {
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: EvaluateWorkflowID(in.RunID, in.Version), TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout, StaticSummary: "evaluation of run " + in.RunID,
	}, TypeEvaluate, in)
	if err != nil {
		return nil, fmt.Errorf("evaluate run %s: %w", in.RunID, err)
	}
	return run, nil
}

// Describe returns what the server knows of an execution of a workflow; execution "" is
// the newest. Errors: serviceerror.NotFound, and those of a server that fails.
func Describe(ctx context.Context, c client.Client, id, execution string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return c.DescribeWorkflowExecution(ctx, id, execution) //nolint:staticcheck // DescribeWorkflow panics on an answer without search attributes
}

// Status asks a run and, while one runs, its stage, whose steps are newer. Of a run that
// has ended without having a say, the server knows how.
func Status(ctx context.Context, c client.Client, runID string) (RunStatus, error) {
	at, err := locate(ctx, c, runID)
	if err != nil {
		return RunStatus{}, fmt.Errorf("status of run %s: %w", runID, err)
	}
	run, err := queryStatus(ctx, c, at.id, at.execution)
	if !at.open() {
		return at.ended(ctx, c, runID, run), nil
	}
	if err != nil {
		if described, failed := Describe(ctx, c, at.id, at.execution); failed == nil && PausedBy(described) != nil {
			return frozenStatus(ctx, c, runID, described), nil
		}
		if known := (RunStatus{RunID: runID}).withTrouble(ctx, c, at.id); known.State == StateStuck {
			return known, nil
		}
		return RunStatus{}, fmt.Errorf("status of run %s: %w", runID, err)
	}
	if run.Child == "" {
		return run, nil
	}
	stage, err := queryStatus(ctx, c, run.Child, "")
	if err == nil {
		return run.withStage(stage), nil
	}
	if described, failed := Describe(ctx, c, run.Child, ""); failed == nil && PausedBy(described) != nil {
		return run.withFrozenStage(PausedBy(described)), nil
	}
	return run.withTrouble(ctx, c, at.id), nil // the stage has not begun, has just ended or is stuck: the run's own answer stands
}

// withStage replaces what the current stage knows better.
func (s RunStatus) withStage(stage RunStatus) RunStatus {
	s.Step, s.Last, s.ETASeconds = stage.Step, stage.Last, stage.ETASeconds
	s.PolicyVersion, s.Alerts = stage.PolicyVersion, stage.Alerts
	if stage.Checkpoint != nil && (s.Checkpoint == nil || *s.Checkpoint < *stage.Checkpoint) {
		s.Checkpoint = stage.Checkpoint
	}
	if s.State != StateStopping && stage.State != StateDone {
		s.State = stage.State
	}
	if s.Reason == "" {
		s.Reason = stage.Reason
	}
	if s.By == "" {
		s.By = stage.By
	}
	if s.Since == nil {
		s.Since = stage.Since
	}
	if s.Frozen == nil {
		s.Frozen = stage.Frozen
	}
	return s
}

func queryStatus(ctx context.Context, c client.Client, workflowID, execution string) (s RunStatus, err error) {
	v, err := c.QueryWorkflow(ctx, workflowID, execution, QueryStatus)
	if err != nil {
		return s, err
	}
	return s, v.Get(&s)
}

// Send gives a run one of the commands and returns its answer. A command that
// makes no sense now is an error with the run's reason, also where the run has ended.
func Send(ctx context.Context, c client.Client, runID, command string, arg Command) (string, error) {
	at, err := locate(ctx, c, runID)
	if err == nil && !at.open() {
		err = at.tooLate(ctx, c)
	}
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	if err := refuseFrozen(ctx, c, at.id, runID); err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	answer, err := giveCommand(ctx, c, at, command, arg)
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	return answer, nil
}
