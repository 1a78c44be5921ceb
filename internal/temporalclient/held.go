package temporalclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Held writes down, in a folder on this machine, the tasks that a worker process
// holds. The server cannot tell a dead worker from a silent one, and waits for a
// time-out. Another process of the same role on the machine can, because the kernel
// has released the dead one's lock; it gives the tasks back at once, see GiveBack.
//
// The notes are hints only. The server refuses a token that it no longer honours,
// and a task that was never written down runs into its time-out. A process on another
// machine finds no notes of its predecessor and works without them.
type Held struct {
	dir  string
	lock *os.File // locked as long as this process lives

	open   context.Context // until Close; GiveBack goes on in the background
	end    context.CancelFunc
	asking sync.WaitGroup

	own   ownActivities
	polls polls
	// last gives back what this process leaves; nil before there is a server to ask.
	last func()
}

// Kinds of files in the folder of a process; each holds bytes of the server.
const (
	heldActivity = "activity"
	heldWorkflow = "workflow"
	heldSticky   = "sticky" // name of the queue of what its cache holds
	heldLock     = "lock"
)

// Hold begins the list of this process in the folder of its role.
func Hold(folder string) (*Held, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	// The folder gets the name under which others look for the dead when it is locked.
	begun, err := os.MkdirTemp(folder, "new.*")
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(begun, heldLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(begun))
	}
	dir := filepath.Join(folder, fmt.Sprintf("%d-%s", os.Getpid(), strings.TrimPrefix(filepath.Base(begun), "new.")))
	if err := os.Rename(begun, dir); err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(begun))
	}
	h := &Held{dir: dir, lock: lock}
	h.open, h.end = context.WithCancel(context.Background())
	return h, nil
}

// identity is the name under which the server knows the process that owns a
// folder. No two processes have the same.
func identity(dir string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s %s@%s", filepath.Base(filepath.Dir(dir)), filepath.Base(dir), host)
}

// Close ends the list of a process that has stopped to poll and to work. The server
// may have handed out an activity to a poll at the moment when that was given up:
// nobody works on it. This process gives it back, and leaves its folder for another
// one that looks later, when the server knows more.
func (h *Held) Close() error {
	h.own.close()
	h.end()
	h.asking.Wait()
	if h.last == nil {
		return errors.Join(os.RemoveAll(h.dir), h.lock.Close())
	}
	h.last()
	return h.lock.Close()
}

// lockFile makes a file and locks it. The error unix.EWOULDBLOCK means that the
// process that holds the lock lives.
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

// options watch the calls of a connection, and let it reconnect soon after its
// server is back.
func (h *Held) options() []grpc.DialOption {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 100*time.Millisecond, 500*time.Millisecond
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(h.watch),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: dialTimeout}),
	}
}

// watch notes the tasks that are handed out and drops those that are answered.
func (h *Held) watch(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	done := h.polls.begin(req)
	err := call(ctx, method, req, reply, conn, append(options, waitForServer(req)...)...)
	done()
	err = settleHeartbeat(req, err)
	if answered, ok := req.(interface{ GetTaskToken() []byte }); ok && isSettled(err) && isAnswer(req) {
		h.drop(answered.GetTaskToken())
	}
	if err != nil {
		h.noteBrokenPoll(req, err)
		return err
	}
	switch r := reply.(type) {
	case *workflowservice.PollActivityTaskQueueResponse:
		h.noteActivity(r)
	case *workflowservice.PollWorkflowTaskQueueResponse:
		h.noteWorkflow(r)
	case *workflowservice.RespondWorkflowTaskCompletedResponse:
		h.noteWorkflow(r.GetWorkflowTask())
		for _, a := range r.GetActivityTasks() {
			h.noteActivity(a)
		}
	}
	if r, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest); ok {
		h.note(heldSticky, noteOf(r.GetStickyAttributes().GetWorkerTaskQueue()))
	}
	return nil
}

// settleHeartbeat hides that a heartbeat did not arrive: the SDK would cancel the
// activity after three seconds without a server, and its work would be done again.
// Whether an activity has been silent for too long is for the server to say: a later
// heartbeat, or the answer, learns that it was given to another worker.
func settleHeartbeat(req any, err error) error {
	if _, ok := req.(*workflowservice.RecordActivityTaskHeartbeatRequest); !ok {
		return err
	}
	switch serviceerror.ToStatus(err).Code() { // the others are the server's word on the activity
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		return nil
	default:
		return err
	}
}

// waitForServer makes polls, heartbeats and answers wait for a server that is
// restarting. The SDK's own pauses between attempts grow to ten seconds, in which
// nobody would poll a server that is back.
func waitForServer(req any) []grpc.CallOption {
	switch req.(type) {
	case *workflowservice.PollActivityTaskQueueRequest, *workflowservice.PollWorkflowTaskQueueRequest, *workflowservice.RecordActivityTaskHeartbeatRequest:
	default:
		if !isAnswer(req) {
			return nil
		}
	}
	return []grpc.CallOption{grpc.WaitForReady(true)}
}

// isSettled reports whether the server is done with a task after an answer to it.
func isSettled(err error) bool {
	var gone *serviceerror.NotFound
	return err == nil || errors.As(serviceerror.FromStatus(status.Convert(err)), &gone) || errors.As(err, &gone)
}

// isAnswer reports whether a request ends a task, as a heartbeat does not.
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

// noteActivity also remembers which activity it is, see lost.go.
func (h *Held) noteActivity(task *workflowservice.PollActivityTaskQueueResponse) {
	h.own.take(task)
	h.note(heldActivity, task.GetTaskToken())
}

// noteWorkflow leaves out queries, which nobody has to take over.
func (h *Held) noteWorkflow(task *workflowservice.PollWorkflowTaskQueueResponse) {
	if task.GetQuery() == nil {
		h.note(heldWorkflow, task.GetTaskToken())
	}
}

func (h *Held) path(token []byte) string {
	sum := sha256.Sum256(token)
	return filepath.Join(h.dir, hex.EncodeToString(sum[:16]))
}

// note and drop are best-effort: without the file, the time-out decides.
func (h *Held) note(kind string, token []byte) {
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
	h.own.drop(token)
	for _, kind := range []string{heldActivity, heldWorkflow} {
		_ = os.Remove(h.path(token) + "." + kind) // mostly one of them is absent
	}
}
