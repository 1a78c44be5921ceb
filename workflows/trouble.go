package workflows

import (
	"context"
	"strings"

	"go.temporal.io/sdk/client"
)

// Trouble is an activity of a run that failed and is being retried.
type Trouble struct {
	Activity string
	Attempt  int
	Message  string // of the last failure, its first line
}

// Troubles asks the server for the activities of a run, named by its workflow
// id, and of its current stage and step that failed at least once. What cannot
// be asked is left out: it is for the eye only.
func Troubles(ctx context.Context, c client.Client, workflowID string) []Trouble {
	return troubles(ctx, c, workflowID, 0)
}

// maxDepth is run, stage, step.
const maxDepth = 3

func troubles(ctx context.Context, c client.Client, workflowID string, depth int) []Trouble {
	if depth >= maxDepth {
		return nil
	}
	described, err := c.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return nil
	}
	var out []Trouble
	for _, a := range described.GetPendingActivities() {
		if f := a.GetLastFailure(); f != nil {
			message, _, _ := strings.Cut(f.GetMessage(), "\n")
			out = append(out, Trouble{Activity: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()), Message: message})
		}
	}
	for _, child := range described.GetPendingChildren() {
		out = append(out, troubles(ctx, c, child.GetWorkflowId(), depth+1)...)
	}
	return out
}
