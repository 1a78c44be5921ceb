package workflows

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// A workflow task that fails is made again without an end, which is right: what failed
// is the build and not the run, and another build may go on. Until then the workflow
// does nothing and answers nothing, so that the server must be asked about it.

// StateStuck is the state of a run that does not go on, because a task of its workflow
// or of its stage's fails again and again.
const StateStuck State = "stuck"

// stuckAttempts is the attempt from which on a task counts as failing. The server hands
// out a first task that failed at once, and answers no query from this attempt on.
const stuckAttempts = 3

// stuckTask says why the tasks of a workflow fail; "" where they do not.
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
