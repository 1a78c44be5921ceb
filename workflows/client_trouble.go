package workflows

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"temper/internal/sampling"
)

// Trouble is an activity of a run that failed and is being retried, that retries
// within itself, or that no process asks for; or a workflow whose task fails again and
// again.
type Trouble struct {
	// Activity is its type, Workflow the id; one of them is set.
	Activity string
	Workflow string
	Attempt  int
	Message  string // of the failure, its first line
}

// String is one line for a person.
func (t Trouble) String() string {
	if t.Workflow != "" {
		return fmt.Sprintf("workflow %s is stuck, attempt %d of its task: %s", t.Workflow, t.Attempt, t.Message)
	}
	return fmt.Sprintf("retrying %s: %s", t.Activity, t.Message)
}

// Troubles asks the server for the activities of a run, named by its workflow id,
// and of its current stage and step that are in trouble. What cannot be asked is left
// out: it is for the eye only.
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
	if stuck := stuckTask(ctx, c, described); stuck.Workflow != "" {
		out = append(out, stuck)
	}
	for _, a := range described.GetPendingActivities() {
		if message := cmp.Or(troubleOf(a), unserved(ctx, c, a)); message != "" {
			message, _, _ = strings.Cut(message, "\n")
			out = append(out, Trouble{Activity: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()), Message: message})
		}
	}
	for _, child := range described.GetPendingChildren() {
		out = append(out, troubles(ctx, c, child.GetWorkflowId(), depth+1)...)
	}
	return out
}

// troubleOf prefers what the activity says now to how its last attempt ended.
func troubleOf(a *workflow.PendingActivityInfo) string {
	var progress string
	if err := converter.GetDefaultDataConverter().FromPayloads(a.GetHeartbeatDetails(), &progress); err == nil {
		if now := sampling.TroubleIn(progress); now != "" {
			return now
		}
	}
	return a.GetLastFailure().GetMessage()
}

// commandOf is the command that starts a process which polls a queue of activities.
func commandOf(queue string) string {
	switch queue {
	case QueueTrainer:
		return "temper role trainer"
	case QueueRollout:
		return "temper role rollout"
	default:
		return ""
	}
}

// unserved says that an activity waits in a queue that nobody has polled for minutes.
// A process that is busy with another run does not poll either.
func unserved(ctx context.Context, c client.Client, a *workflow.PendingActivityInfo) string {
	queue := a.GetActivityOptions().GetTaskQueue().GetName()
	if a.GetState() != enums.PENDING_ACTIVITY_STATE_SCHEDULED || commandOf(queue) == "" {
		return ""
	}
	described, err := c.DescribeTaskQueue(ctx, queue, enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil || len(described.GetPollers()) > 0 {
		return ""
	}
	return fmt.Sprintf("no process polls %s; is %s running?", queue, commandOf(queue))
}
