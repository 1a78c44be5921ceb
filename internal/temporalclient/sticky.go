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
// What the server puts there after its death waits for a time-out of seconds. The
// heir takes it out and fails it, after which any worker may have it.

// noteOf is the note about a sticky queue: its name and that of the queue which it
// belongs to.
func noteOf(q *taskqueuepb.TaskQueue) []byte {
	if q.GetNormalName() == "" {
		return []byte(q.GetName())
	}
	return []byte(q.GetName() + "\n" + q.GetNormalName())
}

// stickyPoll bounds one poll. The server answers it a second earlier, and refuses
// less than two. It is not broken off: a task could get lost with the answer.
const stickyPoll = 3 * time.Second

// empty takes out what waits in the sticky queue of a dead worker and tells the
// server that nobody serves it.
func (e estate) empty(ctx context.Context, note []byte) {
	name, normal, _ := strings.Cut(string(note), "\n")
	for normal != "" && e.takeOut(ctx, name, normal) {
	}
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	// Best effort: the server finds out by itself after ten seconds.
	_, _ = e.client.WorkflowService().ShutdownWorker(ctx, &workflowservice.ShutdownWorkerRequest{
		Namespace: e.namespace, Identity: e.identity, StickyTaskQueue: name, Reason: "the process died",
	})
}

// takeOut fails one task of a queue and reports whether there may be more. The
// server may give it one of the normal queue instead, which loses nothing but an
// attempt.
func (e estate) takeOut(ctx context.Context, name, normal string) bool {
	poll, cancel := context.WithTimeout(ctx, stickyPoll)
	defer cancel()
	task, err := e.client.WorkflowService().PollWorkflowTaskQueue(poll, &workflowservice.PollWorkflowTaskQueueRequest{
		Namespace: e.namespace, Identity: e.identity,
		TaskQueue: &taskqueuepb.TaskQueue{Name: name, NormalName: normal, Kind: enums.TASK_QUEUE_KIND_STICKY},
	})
	if err != nil || len(task.GetTaskToken()) == 0 || task.GetQuery() != nil { // who asks asks again elsewhere
		return false
	}
	ctx, stop := context.WithTimeout(ctx, giveBackTimeout)
	defer stop()
	_, err = e.client.WorkflowService().RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{
		Namespace: e.namespace, Identity: e.identity, TaskToken: task.GetTaskToken(), Cause: enums.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
	})
	return err == nil
}
