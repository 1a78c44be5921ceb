package temporalclient

import (
	"context"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// A worker has a queue of its own, the sticky one, for the workflows in its cache.
// A task that the server puts there after the worker's death waits for a time-out of
// seconds. The next process takes the task out and fails it; then any worker may
// have it.

// noteOf is the note about a sticky queue: its name and the name of the queue that
// it belongs to.
func noteOf(q *taskqueuepb.TaskQueue) []byte {
	if q.GetNormalName() == "" {
		return []byte(q.GetName())
	}
	return []byte(q.GetName() + "\n" + q.GetNormalName())
}

// stickyPoll bounds one poll. The server answers a second earlier than that, and
// refuses less than two. A poll is never cancelled: a task could get lost with it.
const stickyPoll = 3 * time.Second

// emptyStickyQueue takes out what waits in the sticky queue of a dead worker, then
// reports to the server that nobody serves the queue.
func (o orphanedTasks) emptyStickyQueue(ctx context.Context, note []byte) {
	name, normal, _ := strings.Cut(string(note), "\n")
	for normal != "" && o.takeOut(ctx, name, normal) {
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	// Best effort: the server finds out by itself after ten seconds.
	_, _ = o.client.WorkflowService().ShutdownWorker(ctx, &workflowservice.ShutdownWorkerRequest{
		Namespace: o.namespace, Identity: o.identity, StickyTaskQueue: name, Reason: "the process died",
	})
}

// takeOut fails one task of a queue and reports whether there may be more. The
// server may hand out a task of the normal queue instead; then only an attempt is lost.
func (o orphanedTasks) takeOut(ctx context.Context, name, normal string) bool {
	poll, cancel := context.WithTimeout(ctx, stickyPoll)
	defer cancel()
	task, err := o.client.WorkflowService().PollWorkflowTaskQueue(poll, &workflowservice.PollWorkflowTaskQueueRequest{
		Namespace: o.namespace, Identity: o.identity,
		TaskQueue: &taskqueuepb.TaskQueue{Name: name, NormalName: normal, Kind: enums.TASK_QUEUE_KIND_STICKY},
	})
	if err != nil || len(task.GetTaskToken()) == 0 || task.GetQuery() != nil { // a query is asked again elsewhere
		return false
	}
	ctx, stop := context.WithTimeout(ctx, giveBackTimeout)
	defer stop()
	_, err = o.client.WorkflowService().RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{
		Namespace: o.namespace, Identity: o.identity, TaskToken: task.GetTaskToken(), Cause: enums.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
	})
	return err == nil
}
