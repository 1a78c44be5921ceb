package temporalclient

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"temper/workflows"
)

// maxDepth is re-training or ablation, run, stage.
const maxDepth = 3

// node is a workflow with what runs below it.
type node struct {
	id, kind string
	paused   *workflows.Freeze // by the server
	children []*node
}

// hasGate reports whether the workflow can be held at a safe point.
func (n *node) hasGate() bool { return n.kind == workflows.TypeRun || n.kind == workflows.TypeStage }

// rootOf climbs to the workflow that started all of it and is still open.
func rootOf(ctx context.Context, c client.Client, id string) (string, error) {
	for range maxDepth {
		described, err := workflows.Describe(ctx, c, id, "")
		if err != nil {
			return "", fmt.Errorf("describe workflow %s: %w", id, err)
		}
		parent := described.GetWorkflowExecutionInfo().GetParentExecution()
		if parent == nil {
			return id, nil
		}
		above, err := workflows.Describe(ctx, c, parent.GetWorkflowId(), parent.GetRunId())
		if isNotFound(err) || err == nil && !open(above) {
			return id, nil // a run that was started by a restart outlives the other
		}
		if err != nil {
			return "", fmt.Errorf("describe workflow %s: %w", parent.GetWorkflowId(), err)
		}
		id = parent.GetWorkflowId()
	}
	return id, nil
}

func open(d *workflowservice.DescribeWorkflowExecutionResponse) bool {
	switch d.GetWorkflowExecutionInfo().GetStatus() {
	case enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_PAUSED:
		return true
	default:
		return false
	}
}

func isNotFound(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}

// readTree describes a workflow and all below it. One that has ended is nil.
func readTree(ctx context.Context, c client.Client, id string, depth int) (*node, error) {
	described, err := workflows.Describe(ctx, c, id, "")
	if isNotFound(err) || err == nil && !open(described) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	n := &node{id: id, kind: described.GetWorkflowExecutionInfo().GetType().GetName(), paused: workflows.PausedBy(described)}
	if depth == maxDepth {
		return n, nil
	}
	for _, child := range described.GetPendingChildren() {
		below, err := readTree(ctx, c, child.GetWorkflowId(), depth+1)
		if err != nil {
			return nil, err
		}
		if below != nil {
			n.children = append(n.children, below)
		}
	}
	return n, nil
}

// each visits all workflows from the top down.
func (n *node) each(visit func(*node)) {
	visit(n)
	for _, child := range n.children {
		child.each(visit)
	}
}

// pausedBelow is the first pause among the workflows below; nil for none.
func (n *node) pausedBelow() (found *workflows.Freeze) {
	for _, child := range n.children {
		child.each(func(at *node) {
			if found == nil && at.paused != nil {
				below := *at.paused
				below.Below = true
				found = &below
			}
		})
	}
	return found
}

// eachGate visits the workflows that can be told, with what should hold each: the
// nearest pause above it, or else one below it.
func (n *node) eachGate(above *workflows.Freeze, visit func(at *node, want *workflows.Freeze)) {
	if n.paused != nil {
		above = n.paused
	} else if n.hasGate() {
		want := above
		if want == nil {
			want = n.pausedBelow()
		}
		visit(n, want)
	}
	for _, child := range n.children {
		child.eachGate(above, visit)
	}
}
