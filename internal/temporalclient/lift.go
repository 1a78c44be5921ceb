package temporalclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/workflows"
)

// Lift takes back the server's pauses of a run, of what is below it and of what started
// it, and tells the gates. It returns what was paused.
func Lift(ctx context.Context, c client.Client, namespace, runID, by, reason string) ([]workflows.Freeze, error) {
	id, err := workflows.FindRun(ctx, c, runID)
	if err != nil {
		return nil, fmt.Errorf("resume run %s: %w", runID, err)
	}
	root, err := rootOf(ctx, c, id)
	if err != nil {
		return nil, err
	}
	tree, err := readTree(ctx, c, root, 1)
	if err != nil || tree == nil {
		return nil, err
	}
	var lifted []workflows.Freeze
	tree.each(func(n *node) {
		if n.paused != nil && err == nil {
			err = unpause(ctx, c, namespace, n.id, by, reason)
			lifted = append(lifted, *n.paused)
		}
	})
	if err != nil || len(lifted) == 0 {
		return nil, err
	}
	_, err = NewWatch(c, slog.New(slog.DiscardHandler)).settle(ctx, root)
	return lifted, err
}

// unpause lets a workflow continue. One that another client has unpaused, or that has ended
// meanwhile, is no error.
func unpause(ctx context.Context, c client.Client, namespace, id, by, reason string) error {
	_, err := c.WorkflowService().UnpauseWorkflowExecution(ctx, &workflowservice.UnpauseWorkflowExecutionRequest{
		Namespace: namespace, WorkflowId: id, Identity: by, Reason: reason,
	})
	var already *serviceerror.FailedPrecondition
	if err == nil || isNotFound(err) || errors.As(err, &already) {
		return nil
	}
	return fmt.Errorf("unpause workflow %s: %w", id, err)
}
