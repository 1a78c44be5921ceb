package workflows

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
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

// Troubles asks the server for the activities in trouble of a run, named by its workflow
// id, and of its current stage. It ignores failures of the server: the result is only for
// display.
func Troubles(ctx context.Context, c client.Client, workflowID string) []Trouble {
	return troubles(ctx, c, workflowID, 0)
}

// maxDepth is run, stage.
const maxDepth = 2

func troubles(ctx context.Context, c client.Client, workflowID string, depth int) []Trouble {
	if depth >= maxDepth {
		return nil
	}
	described, err := Describe(ctx, c, workflowID, "")
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

// unserved reports that an activity waits in a queue that no worker has polled for minutes.
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

// The server retries a failed workflow task without an end, which is right: the build has
// failed and not the run, and another build may succeed. Until then the workflow does
// nothing and answers nothing, so that clients must ask the server about it.

// StateStuck is the state of a run that does not go on, because a task of its workflow
// or of its stage's fails again and again.
const StateStuck State = "stuck"

// stuckAttempts is the attempt from which on a task counts as failing. The server hands
// out a first task that failed at once, and answers no query from this attempt on.
const stuckAttempts = 3

// stuckTask reports why the tasks of a workflow fail; "" where they do not.
func stuckTask(ctx context.Context, c client.Client, d *workflowservice.DescribeWorkflowExecutionResponse) Trouble {
	task := d.GetPendingWorkflowTask()
	if task.GetAttempt() < stuckAttempts || d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return Trouble{}
	}
	execution := d.GetWorkflowExecutionInfo().GetExecution()
	t := Trouble{Workflow: execution.GetWorkflowId(), Attempt: int(task.GetAttempt()), Message: "no worker finishes its task"}
	// The server keeps the first failure of a row alone. Newest first.
	events := c.GetWorkflowHistory(ctx, execution.GetWorkflowId(), execution.GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var failure *history.WorkflowTaskFailedEventAttributes
	build := ""
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return t // what is known must do
		}
		if done := e.GetWorkflowTaskCompletedEventAttributes(); done != nil {
			failure, build = nil, done.GetDeploymentVersion().GetBuildId()
		}
		if failed := e.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			failure = failed
		}
	}
	if failure != nil {
		t.Message = failureOfTask(failure, build)
	}
	return t
}

// failureOfTask says in a line why a task failed, and what can be done. build is the
// last one that could do a task of the workflow.
func failureOfTask(f *history.WorkflowTaskFailedEventAttributes, build string) string {
	text, _, _ := strings.Cut(f.GetFailure().GetMessage(), "\n")
	if text == "" {
		text = f.GetCause().String()
	}
	if f.GetCause() == enums.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR {
		if build != "" {
			build = ", such as " + build
		}
		return fmt.Sprintf("this build does not replay what the run has done: start one that does%s (%s)", build, shorten(text))
	}
	return shorten(text)
}

// withTrouble adds to the status of a run what the server says of workflows of it that
// do not answer. It costs nothing where they answer.
func (s RunStatus) withTrouble(ctx context.Context, c client.Client, workflowID string) RunStatus {
	for _, t := range Troubles(ctx, c, workflowID) {
		if t.Workflow != "" {
			s.State = StateStuck
			s.Alerts = append([]string{t.String()}, s.Alerts...)
		}
	}
	return s
}

// MarkStuck asks the server about runs that it lists, as far as it is quick, and turns
// the state of those that are stuck.
func MarkStuck(ctx context.Context, c client.Client, runs []OpenRun) {
	var asking sync.WaitGroup
	for i := range runs[:min(len(runs), maxRunsAsked)] {
		asking.Go(func() {
			for _, t := range Troubles(ctx, c, runs[i].Workflow) {
				if t.Workflow != "" {
					runs[i].State, runs[i].Trouble = StateStuck, t.String()
				}
			}
		})
	}
	asking.Wait()
}
