package temporalclient

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// ErrTypeWorkerDied is the type of the error of an activity whose worker died.
// It is retried.
const ErrTypeWorkerDied = "WorkerDied"

// GivenBack counts what GiveBack told the server. Unnoted activities are those
// that the server named and no list.
type GivenBack struct{ Workers, Activities, Unnoted, WorkflowTasks int }

// giveBackTimeout bounds telling the server of one task.
const giveBackTimeout = 5 * time.Second

// askAgain is when the server is asked once more what the dead hold, counted from
// the time before. Its list of workflows is late by moments, and a task that came
// up just then may have gone to a poll of the dead.
var askAgain = [...]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// GiveBack tells the server which tasks were held by processes of this role that
// died on this machine, so that it hands them out again at once. Call it before
// this process polls. It looks again in the background for some seconds, until
// Close. What cannot be told is left to its time-out.
func (h *Held) GiveBack(ctx context.Context, c client.Client, namespace string) GivenBack {
	var out GivenBack
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(h.dir), "*-*"))
	if err != nil {
		return out // the pattern is right
	}
	h.mine.serve(h, c, namespace)
	dead := map[string]bool{} // by the identity that the server knows
	e := estate{client: c, namespace: namespace, identity: identity(h.dir), out: &out, open: h.open, background: &h.asking}
	e.lost = func(_ string, a *workflowpb.PendingActivityInfo) bool {
		return dead[a.GetLastWorkerIdentity()]
	}
	for _, dir := range dirs {
		if dir == h.dir {
			continue
		}
		lock, err := lockFile(filepath.Join(dir, heldLock))
		if err != nil {
			continue // it lives, or another process is at it
		}
		out.Workers++
		dead[identity(dir)] = true
		if e.settle(ctx, dir) == nil {
			_ = os.RemoveAll(dir) // what is left is tried again and refused
		}
		_ = lock.Close() // nothing was written
	}
	if out.Workers > 0 {
		_ = e.unnoted(ctx) // what was not found is asked for again
		later := e
		later.out = &GivenBack{} // its counts interest nobody
		h.asking.Go(func() { later.again(h.open) })
	}
	return out
}

// again looks for what nobody noted a few times more, until ctx ends.
func (e estate) again(ctx context.Context) {
	for _, pause := range askAgain {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			_ = e.unnoted(ctx) // what was not found runs into its time-out
		}
	}
}

// estate is what dead processes leave, or what never arrived at a living one.
type estate struct {
	client    client.Client
	namespace string
	identity  string // of who asks
	out       *GivenBack
	// lost says that nobody works on an activity which the server takes for started.
	lost func(run string, a *workflowpb.PendingActivityInfo) bool
	// open and background are for what goes on beside the heir's own work.
	open       context.Context
	background *sync.WaitGroup
}

// maxOpen bounds the workflows that are searched for tasks that nobody noted.
const maxOpen = 200

// unnoted gives back activities that the server had handed to a process which
// died before it could write that down: the server names the process that it takes
// for the worker. Between the question and the answer such an activity may time
// out and go to a living worker, whose attempt is then made again.
func (e estate) unnoted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	open, err := e.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: e.namespace, PageSize: maxOpen, Query: "ExecutionStatus = 'Running'",
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range open.GetExecutions() {
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		d, err := e.client.DescribeWorkflowExecution(ctx, id, run)
		errs = append(errs, err)
		for _, a := range d.GetPendingActivities() {
			if a.GetState() != enums.PENDING_ACTIVITY_STATE_STARTED || !e.lost(run, a) {
				continue
			}
			err := e.client.CompleteActivityByID(ctx, e.namespace, id, run, a.GetActivityId(), nil, workerDied())
			if errs = append(errs, err); err == nil {
				e.out.Unnoted++
			}
		}
	}
	return errors.Join(errs...)
}

// workerDied is how an activity ends whose worker died: it is handed out again at once.
func workerDied() error {
	return temporal.NewApplicationErrorWithOptions("the process that worked on it died", ErrTypeWorkerDied,
		temporal.ApplicationErrorOptions{NextRetryDelay: time.Millisecond})
}

func (e estate) settle(ctx context.Context, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err == nil {
			err = e.give(ctx, strings.TrimPrefix(filepath.Ext(file.Name()), "."), data)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// give tells the server of one thing. A task that it no longer knows is no error.
func (e estate) give(ctx context.Context, kind string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	var err error
	switch kind {
	case heldActivity:
		err = e.client.CompleteActivity(ctx, data, nil, workerDied())
		if err == nil {
			e.out.Activities++
		}
	case heldWorkflow:
		_, err = e.client.WorkflowService().RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{
			TaskToken: data, Namespace: e.namespace, Cause: enums.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
		})
		if err == nil {
			e.out.WorkflowTasks++
		}
	case heldSticky:
		e.background.Go(func() { e.empty(e.open, data) })
	default:
		return nil
	}
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
