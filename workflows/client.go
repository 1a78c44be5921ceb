package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/internal/run"
)

// The functions below are the client's side of the contract: what the command
// line and the dashboard do. A plain Temporal client can do the same with the
// names of this package and JSON.

// ErrRunning says that a run of that id is going on.
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

// FindRun returns the workflow id of a run. It is made from the run id, unless a
// plain client chose another: then the run id is the workflow id, or the server
// knows it as a search attribute. Errors: *serviceerror.NotFound.
func FindRun(ctx context.Context, c client.Client, runID string) (string, error) {
	var notFound *serviceerror.NotFound
	var err error
	for _, id := range []string{RunWorkflowID(runID), runID} {
		if _, err = c.DescribeWorkflowExecution(ctx, id, ""); !errors.As(err, &notFound) {
			return id, err
		}
	}
	found, listErr := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND %s = '%s'", TypeRun, AttributeRun, strings.ReplaceAll(runID, "'", "")), PageSize: 1,
	})
	if listErr != nil || len(found.GetExecutions()) == 0 {
		return "", err // a server without the attribute cannot be asked that way
	}
	return found.GetExecutions()[0].GetExecution().GetWorkflowId(), nil
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

// Status asks a run and, while one runs, its stage, whose steps are newer.
func Status(ctx context.Context, c client.Client, runID string) (RunStatus, error) {
	id, err := FindRun(ctx, c, runID)
	if err != nil {
		return RunStatus{}, fmt.Errorf("status of run %s: %w", runID, err)
	}
	run, err := queryStatus(ctx, c, id)
	if err != nil {
		if described, failed := c.DescribeWorkflowExecution(ctx, id, ""); failed == nil && PausedBy(described) != nil {
			return frozenStatus(ctx, c, runID, described), nil
		}
		if known := (RunStatus{RunID: runID}).withTrouble(ctx, c, id); known.State == StateStuck {
			return known, nil
		}
		return RunStatus{}, fmt.Errorf("status of run %s: %w", runID, err)
	}
	if run.Child == "" {
		return run, nil
	}
	stage, err := queryStatus(ctx, c, run.Child)
	if err == nil {
		return run.withStage(stage), nil
	}
	if described, failed := c.DescribeWorkflowExecution(ctx, run.Child, ""); failed == nil && PausedBy(described) != nil {
		return run.withFrozenStage(PausedBy(described)), nil
	}
	return run.withTrouble(ctx, c, id), nil // the stage has not begun, has just ended or is stuck: the run's own answer stands
}

// withStage replaces what the current stage knows better.
func (s RunStatus) withStage(stage RunStatus) RunStatus {
	s.Step, s.Last, s.ETASeconds = stage.Step, stage.Last, stage.ETASeconds
	s.PolicyVersion, s.Alerts = stage.PolicyVersion, stage.Alerts
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

func queryStatus(ctx context.Context, c client.Client, workflowID string) (s RunStatus, err error) {
	v, err := c.QueryWorkflow(ctx, workflowID, "", QueryStatus)
	if err != nil {
		return s, err
	}
	return s, v.Get(&s)
}

// Send gives a run one of the commands and returns its answer. A command that
// makes no sense now is an error with the run's reason.
func Send(ctx context.Context, c client.Client, runID, command string, arg Command) (string, error) {
	id, err := FindRun(ctx, c, runID)
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	if err := refuseFrozen(ctx, c, id, runID); err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	answer, err := giveCommand(ctx, c, id, command, arg)
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", command, runID, err)
	}
	return answer, nil
}
