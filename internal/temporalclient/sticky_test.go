package temporalclient

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// stickyServer has workflow tasks in sticky queues.
type stickyServer struct {
	*server
	waiting  map[string][]string // tokens by queue
	done     []string
	normal   []string      // queues that the polled ones belong to
	shutDown chan struct{} // closed when a queue was given up
}

func (s *stickyServer) PollWorkflowTaskQueue(_ context.Context, r *workflowservice.PollWorkflowTaskQueueRequest) (*workflowservice.PollWorkflowTaskQueueResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.GetTaskQueue().GetName()
	s.normal = append(s.normal, r.GetTaskQueue().GetNormalName())
	waiting := s.waiting[name]
	if len(waiting) > 0 {
		s.waiting[name] = waiting[1:]
		return &workflowservice.PollWorkflowTaskQueueResponse{TaskToken: []byte(waiting[0])}, nil
	}
	return &workflowservice.PollWorkflowTaskQueueResponse{}, nil
}

func (s *stickyServer) RespondWorkflowTaskFailed(_ context.Context, r *workflowservice.RespondWorkflowTaskFailedRequest) (*workflowservice.RespondWorkflowTaskFailedResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, string(r.GetTaskToken()))
	return &workflowservice.RespondWorkflowTaskFailedResponse{}, nil
}

func (s *stickyServer) ShutdownWorker(_ context.Context, r *workflowservice.ShutdownWorkerRequest) (*workflowservice.ShutdownWorkerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, "shut down "+r.GetStickyTaskQueue())
	close(s.shutDown)
	return &workflowservice.ShutdownWorkerResponse{}, nil
}

// TestWorkflowTasksForADeadCacheGoElsewhere: they would wait for their time-out.
func TestWorkflowTasksForADeadCacheGoElsewhere(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "worker")
	var lists []*Held
	for range 2 {
		h, err := Hold(folder)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, h)
	}
	dead, heir := lists[0], lists[1]
	req := &workflowservice.RespondWorkflowTaskCompletedRequest{TaskToken: []byte("w")}
	req.StickyAttributes = stickyTo("cache-1", "temper")
	call(t, dead, req, &workflowservice.RespondWorkflowTaskCompletedResponse{}, nil)
	if err := dead.lock.Close(); err != nil { // the kernel does so when it dies
		t.Fatal(err)
	}
	s := &stickyServer{server: &server{}, shutDown: make(chan struct{}), waiting: map[string][]string{"cache-1": {"a", "b"}}}
	heir.GiveBack(t.Context(), serve(t, s, heir), "default")
	<-s.shutDown
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"a", "b", "shut down cache-1"}; !slices.Equal(s.done, want) {
		t.Errorf("done %q, want %q", s.done, want)
	}
	if slices.ContainsFunc(s.normal, func(q string) bool { return q != "temper" }) {
		t.Errorf("polls of queues that belong to %q, want temper: the server refuses others", s.normal)
	}
	if err := heir.Close(); err != nil {
		t.Error(err)
	}
}

func stickyTo(name, normal string) *taskqueuepb.StickyExecutionAttributes {
	return &taskqueuepb.StickyExecutionAttributes{WorkerTaskQueue: &taskqueuepb.TaskQueue{Name: name, NormalName: normal}}
}
