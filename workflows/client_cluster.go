package workflows

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// AnnounceCluster tells the workflow of the cluster something, and starts it where it
// does not run.
func AnnounceCluster(c client.Client) func(ctx context.Context, message string, arg any) error {
	return func(ctx context.Context, message string, arg any) error {
		_, err := c.SignalWithStartWorkflow(ctx, ClusterWorkflowID, message, arg, client.StartWorkflowOptions{
			ID: ClusterWorkflowID, TaskQueue: QueueControl, WorkflowTaskTimeout: taskTimeout,
			StaticSummary:            "room on the cluster: who has it, who waits for it",
			WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, TypeCluster, ClusterInput{})
		if err != nil {
			return fmt.Errorf("tell the workflow %s: %w", ClusterWorkflowID, err)
		}
		return nil
	}
}

// FindHolders names the open workflows of runs, and which of these holders have ended.
func FindHolders(c client.Client) func(ctx context.Context, holders []string) (open, ended []string, err error) {
	return func(ctx context.Context, holders []string) (open, ended []string, err error) {
		runs, err := OpenRuns(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		is := map[string]bool{}
		for _, r := range runs {
			open = append(open, r.Workflow)
			is[r.Workflow] = true
		}
		for _, holder := range holders {
			if is[holder] {
				continue
			}
			// The list of the server is a moment behind.
			described, err := Describe(ctx, c, holder, "")
			var missing *serviceerror.NotFound
			if err != nil && !errors.As(err, &missing) {
				return nil, nil, fmt.Errorf("describe workflow %s: %w", holder, err)
			}
			if err != nil || described.GetWorkflowExecutionInfo().GetCloseTime() != nil {
				ended = append(ended, holder)
			}
		}
		return open, ended, nil
	}
}

// StatusOfCluster asks the workflow of the cluster how things are.
func StatusOfCluster(ctx context.Context, c client.Client) (s ClusterStatus, err error) {
	v, err := c.QueryWorkflow(ctx, ClusterWorkflowID, "", QueryStatus)
	if err == nil {
		err = v.Get(&s)
	}
	if err != nil {
		return s, fmt.Errorf("status of the workflow %s: %w", ClusterWorkflowID, err)
	}
	return s, nil
}

// MoveNode gives the cluster CommandDrain or CommandUndrain and returns its answer.
func MoveNode(ctx context.Context, c client.Client, command string, n NodeCommand) (answer string, err error) {
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: ClusterWorkflowID, UpdateName: command, Args: []any{n}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if err != nil {
		return "", fmt.Errorf("%s node %s: %w", command, n.Node, err)
	}
	return answer, nil
}

// NoCluster reports whether an error says that the workflow of the cluster does not run: no
// run has asked for room yet.
func NoCluster(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}
