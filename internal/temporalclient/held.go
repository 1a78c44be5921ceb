package temporalclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/status"
)

// Held writes down, in a folder on this machine, the tasks that a worker process
// holds. The server cannot tell a worker that died from one that is silent, and
// waits for a time-out; the next process of the same role on the machine can: the
// kernel has released the dead one's lock. It gives the tasks back at once, see
// GiveBack.
//
// It is a hint only. A token that the server no longer honours is refused by it,
// and a task that was never written down runs into its time-out.
type Held struct {
	dir  string
	lock *os.File // locked as long as this process lives

	open   context.Context // until Close; GiveBack goes on in the background
	end    context.CancelFunc
	asking sync.WaitGroup

	mine mine
}

// Kinds of files in the folder of a process; each holds bytes of the server.
const (
	heldActivity = "activity"
	heldWorkflow = "workflow"
	heldSticky   = "sticky" // name of the queue of what its cache holds
	heldLock     = "lock"
)

// Hold begins the list of this process in a folder of its role.
func Hold(folder string) (*Held, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(folder, fmt.Sprintf("%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(dir, heldLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	h := &Held{dir: dir, lock: lock}
	h.open, h.end = context.WithCancel(context.Background())
	return h, nil
}

// identity is how the server knows the process that owns a folder: no two have
// the same.
func identity(dir string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s %s@%s", filepath.Base(filepath.Dir(dir)), filepath.Base(dir), host)
}

// Close ends the list of a process that ends in order, and holds nothing.
func (h *Held) Close() error {
	h.mine.close()
	h.end()
	h.asking.Wait()
	return errors.Join(os.RemoveAll(h.dir), h.lock.Close())
}

// lockFile locks a file that it makes; unix.EWOULDBLOCK means that another
// process lives.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// options watch the calls of a connection, and have it come back soon after its
// server does.
func (h *Held) options() []grpc.DialOption {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 100*time.Millisecond, 500*time.Millisecond
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(h.watch),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: dialTimeout}),
	}
}

// watch notes what is handed out and what is answered.
func (h *Held) watch(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, conn, append(options, waits(req)...)...)
	if answered, ok := req.(interface{ GetTaskToken() []byte }); ok && settled(err) && isAnswer(req) {
		h.drop(answered.GetTaskToken())
	}
	if err != nil {
		h.brokenPoll(req, err)
		return err
	}
	switch r := reply.(type) {
	case *workflowservice.PollActivityTaskQueueResponse:
		h.takeActivity(r)
	case *workflowservice.PollWorkflowTaskQueueResponse:
		h.takeWorkflow(r)
	case *workflowservice.RespondWorkflowTaskCompletedResponse:
		h.takeWorkflow(r.GetWorkflowTask())
		for _, a := range r.GetActivityTasks() {
			h.takeActivity(a)
		}
	}
	if r, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest); ok {
		h.take(heldSticky, noteOf(r.GetStickyAttributes().GetWorkerTaskQueue()))
	}
	return nil
}

// waits makes polls and answers wait for a server that is restarting. The SDK's own
// pauses between attempts grow to ten seconds, and nobody would poll a server that
// is back.
func waits(req any) []grpc.CallOption {
	switch req.(type) {
	case *workflowservice.PollActivityTaskQueueRequest, *workflowservice.PollWorkflowTaskQueueRequest:
	default:
		if !isAnswer(req) {
			return nil
		}
	}
	return []grpc.CallOption{grpc.WaitForReady(true)}
}

// settled says whether the server is done with a task after an answer to it.
func settled(err error) bool {
	var gone *serviceerror.NotFound
	return err == nil || errors.As(serviceerror.FromStatus(status.Convert(err)), &gone) || errors.As(err, &gone)
}

// isAnswer tells the end of a task from a heartbeat.
func isAnswer(req any) bool {
	switch req.(type) {
	case *workflowservice.RespondActivityTaskCompletedRequest, *workflowservice.RespondActivityTaskFailedRequest,
		*workflowservice.RespondActivityTaskCanceledRequest,
		*workflowservice.RespondWorkflowTaskCompletedRequest, *workflowservice.RespondWorkflowTaskFailedRequest:
		return true
	default:
		return false
	}
}

// takeActivity also remembers which activity it is, see lost.go.
func (h *Held) takeActivity(task *workflowservice.PollActivityTaskQueueResponse) {
	h.mine.take(task)
	h.take(heldActivity, task.GetTaskToken())
}

// takeWorkflow leaves out queries, which nobody has to take over.
func (h *Held) takeWorkflow(task *workflowservice.PollWorkflowTaskQueueResponse) {
	if task.GetQuery() == nil {
		h.take(heldWorkflow, task.GetTaskToken())
	}
}

func (h *Held) path(token []byte) string {
	sum := sha256.Sum256(token)
	return filepath.Join(h.dir, hex.EncodeToString(sum[:16]))
}

// take and drop are best-effort: without the file, the time-out decides.
func (h *Held) take(kind string, token []byte) {
	if len(token) == 0 {
		return
	}
	path := h.path(token) + "." + kind
	if _, err := os.Stat(path); kind == heldSticky && err == nil {
		return
	}
	_ = os.WriteFile(path, token, 0o600) // see above
}

func (h *Held) drop(token []byte) {
	h.mine.drop(token)
	for _, kind := range []string{heldActivity, heldWorkflow} {
		_ = os.Remove(h.path(token) + "." + kind) // mostly one of them is absent
	}
}
