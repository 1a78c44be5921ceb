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

// GivenBack counts what GiveBack reported to the server. Unnoted activities are
// those that the server named and no list did.
type GivenBack struct{ Workers, Activities, Unnoted, WorkflowTasks int }

// giveBackTimeout bounds the report of one task.
const giveBackTimeout = 5 * time.Second

// askPauses holds the pauses before the server is asked once more what dead processes
// hold. Its list of workflows is a moment behind, and a task may have gone to a poll
// of a process that had died already.
var askPauses = [...]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// siblingPause lies between two looks at the processes of this role on this machine.
// It doubles up to maxSiblingPause while tasks cannot be reported.
const (
	siblingPause    = time.Second
	maxSiblingPause = time.Minute
)

// GiveBack reports to the server the tasks of processes of this role that ended on
// this machine, mostly by dying, so that it hands them out again at once. Call it before this process
// polls. Until Close it looks again in the background: at what the server did not
// know yet, and at processes beside this one that die and have no successor. A task
// that cannot be reported runs into its time-out.
func (h *Held) GiveBack(ctx context.Context, c client.Client, namespace string) GivenBack {
	h.own.connectTo(h, c, namespace)
	h.last = func() { h.giveBackOwn(c, namespace) } //nolint:contextcheck // it is called at the end of the process
	out, _ := h.giveBackOfDead(ctx, c, namespace)   // it is tried again below
	h.asking.Go(func() {
		for pause := siblingPause; ; {
			select {
			case <-h.open.Done():
				return
			case <-time.After(pause):
			}
			if _, err := h.giveBackOfDead(h.open, c, namespace); err != nil {
				pause = min(2*pause, maxSiblingPause)
			} else {
				pause = siblingPause
			}
		}
	})
	return out
}

// giveBackOfDead looks once for processes that died. The error is that of tasks which
// could not be reported.
func (h *Held) giveBackOfDead(ctx context.Context, c client.Client, namespace string) (out GivenBack, err error) {
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(h.dir), "*-*"))
	if err != nil {
		return out, err // never: the pattern is right
	}
	settled := 0
	var errs []error
	dead := map[string]bool{} // by the identity that the server knows
	orphans := orphanedTasks{client: c, namespace: namespace, identity: identity(h.dir), out: &out, open: h.open, background: &h.asking}
	orphans.lost = func(_ string, a *workflowpb.PendingActivityInfo) bool {
		return dead[a.GetLastWorkerIdentity()]
	}
	for _, dir := range dirs {
		if dir == h.dir {
			continue
		}
		lock, err := lockFile(filepath.Join(dir, heldLock))
		if err != nil {
			continue // it lives, another process takes care of it, or it ended in order
		}
		out.Workers++
		dead[identity(dir)] = true
		err = orphans.giveBackAll(ctx, dir)
		if errs = append(errs, err); err == nil {
			_ = os.RemoveAll(dir) // what is left is tried again and refused
			settled++
		}
		_ = lock.Close() // nothing was written
	}
	if settled > 0 {
		_ = orphans.giveBackUnnoted(ctx) // it is tried again below
		later := orphans
		later.out = &GivenBack{} // nobody reads these counts
		h.asking.Go(func() { later.askAgain(h.open) })
	}
	return out, errors.Join(errs...)
}

// Bounds of the last questions of a process that ends in order.
const (
	lastPause   = 200 * time.Millisecond
	lastTimeout = time.Second
)

// giveBackOwn gives back the activities that the server counts as started by this
// process, which works on none any more.
func (h *Held) giveBackOwn(c client.Client, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
	defer cancel()
	own := orphanedTasks{client: c, namespace: namespace, identity: identity(h.dir), out: &GivenBack{}}
	own.lost = func(_ string, a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastWorkerIdentity() == own.identity
	}
	// Best effort: another process tries again, or the time-out decides.
	if own.giveBackUnnoted(ctx) != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(lastPause):
		_ = own.giveBackUnnoted(ctx) // as above
	}
}

// askAgain looks a few more times for activities that nobody noted, until ctx ends.
func (o orphanedTasks) askAgain(ctx context.Context) {
	for _, pause := range askPauses {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			_ = o.giveBackUnnoted(ctx) // what is not found runs into its time-out
		}
	}
}

// orphanedTasks gives back tasks that dead processes left, or that never arrived at
// a living one.
type orphanedTasks struct {
	client    client.Client
	namespace string
	identity  string // of the process that gives back
	out       *GivenBack
	// lost says of an activity that the server counts as started that nobody works
	// on it.
	lost func(run string, a *workflowpb.PendingActivityInfo) bool
	// open and background are for what goes on beside this process's own work.
	open       context.Context
	background *sync.WaitGroup
}

// maxOpen bounds the workflows that are searched.
const maxOpen = 200

// giveBackUnnoted gives back activities of a process that died before it could write
// them down: the server names the process that it believes to work on each. Between
// the question and the report such an activity may time out and go to a living
// worker; that worker's attempt is then made again.
func (o orphanedTasks) giveBackUnnoted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	open, err := o.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.namespace, PageSize: maxOpen, Query: "ExecutionStatus = 'Running'",
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range open.GetExecutions() {
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		d, err := o.client.DescribeWorkflowExecution(ctx, id, run)
		errs = append(errs, err)
		for _, a := range d.GetPendingActivities() {
			if a.GetState() != enums.PENDING_ACTIVITY_STATE_STARTED || !o.lost(run, a) {
				continue
			}
			err := o.client.CompleteActivityByID(ctx, o.namespace, id, run, a.GetActivityId(), nil, workerDied())
			if errs = append(errs, err); err == nil {
				o.out.Unnoted++
			}
		}
	}
	return errors.Join(errs...)
}

// workerDied is the error of an activity whose worker died. The server hands the
// activity out again at once.
func workerDied() error {
	return temporal.NewApplicationErrorWithOptions("the process that worked on it died", ErrTypeWorkerDied,
		temporal.ApplicationErrorOptions{NextRetryDelay: time.Millisecond})
}

// giveBackAll reports everything that a dead process has noted in its folder.
func (o orphanedTasks) giveBackAll(ctx context.Context, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err == nil {
			err = o.giveBackOne(ctx, strings.TrimPrefix(filepath.Ext(file.Name()), "."), data)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// giveBackOne reports one note. A task that the server no longer knows is no error.
func (o orphanedTasks) giveBackOne(ctx context.Context, kind string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	var err error
	switch kind {
	case heldActivity:
		err = o.client.CompleteActivity(ctx, data, nil, workerDied())
		if err == nil {
			o.out.Activities++
		}
	case heldWorkflow:
		_, err = o.client.WorkflowService().RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{
			TaskToken: data, Namespace: o.namespace, Cause: enums.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
		})
		if err == nil {
			o.out.WorkflowTasks++
		}
	case heldSticky:
		o.background.Go(func() { o.emptyStickyQueue(o.open, data) })
	default:
		return nil
	}
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
