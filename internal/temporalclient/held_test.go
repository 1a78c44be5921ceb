package temporalclient

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call plays one call of a connection.
func call(t *testing.T, h *Held, req, reply any, err error) {
	t.Helper()
	got := h.watch(t.Context(), "", req, reply, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
	if got != err { //nolint:errorlint // it must be passed on as it is
		t.Fatalf("the call returns %v, want %v", got, err)
	}
}

func poll(t *testing.T, h *Held, token string) {
	t.Helper()
	call(t, h, &workflowservice.PollActivityTaskQueueRequest{}, &workflowservice.PollActivityTaskQueueResponse{TaskToken: []byte(token)}, nil)
}

// tokens are those in the folder of a process.
func tokens(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, filepath.Ext(file)[1:]+" "+string(data))
	}
	slices.Sort(out)
	return out
}

func TestTasksAreHeldUntilTheyAreAnswered(t *testing.T) {
	h, err := Hold(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	poll(t, h, "") // an empty poll
	poll(t, h, "a")
	poll(t, h, "b")
	poll(t, h, "c")
	call(t, h, &workflowservice.RecordActivityTaskHeartbeatRequest{TaskToken: []byte("a")}, &workflowservice.RecordActivityTaskHeartbeatResponse{}, nil)
	call(t, h, &workflowservice.RespondActivityTaskFailedRequest{TaskToken: []byte("b")}, nil, status.Error(codes.Unavailable, "no server"))
	call(t, h, &workflowservice.RespondActivityTaskCompletedRequest{TaskToken: []byte("c")}, nil, status.Error(codes.NotFound, "timed out"))
	call(t, h, &workflowservice.PollWorkflowTaskQueueRequest{}, &workflowservice.PollWorkflowTaskQueueResponse{TaskToken: []byte("w1")}, nil)
	call(t, h, &workflowservice.PollWorkflowTaskQueueRequest{}, &workflowservice.PollWorkflowTaskQueueResponse{
		TaskToken: []byte("question"), Query: &querypb.WorkflowQuery{}, WorkflowExecution: &commonpb.WorkflowExecution{},
	}, nil)
	req := &workflowservice.RespondWorkflowTaskCompletedRequest{TaskToken: []byte("w1")}
	req.StickyAttributes = &taskqueuepb.StickyExecutionAttributes{WorkerTaskQueue: &taskqueuepb.TaskQueue{Name: "s"}}
	call(t, h, req, &workflowservice.RespondWorkflowTaskCompletedResponse{WorkflowTask: &workflowservice.PollWorkflowTaskQueueResponse{TaskToken: []byte("w2")}}, nil)
	want := []string{"activity a", "activity b", "sticky s", "workflow w2"}
	if got := tokens(t, h.dir); !slices.Equal(got, want) {
		t.Errorf("held %q, want %q", got, want)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.dir); err == nil {
		t.Error("a process that ended in order leaves its list")
	}
}

// TestHeartbeatThatDoesNotArriveCancelsNothing: the SDK cancels an activity whose
// heartbeat fails, and a server that is away for seconds is no reason.
func TestHeartbeatThatDoesNotArriveCancelsNothing(t *testing.T) {
	h, err := Hold(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // a temporary folder
	beat := func(err error) error {
		reply := &workflowservice.RecordActivityTaskHeartbeatResponse{}
		return h.watch(t.Context(), "", &workflowservice.RecordActivityTaskHeartbeatRequest{TaskToken: []byte("a")}, reply, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		word := slices.Contains([]codes.Code{codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
			codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.Unauthenticated}, code)
		if got := beat(status.Error(code, "x")); (got != nil) != word {
			t.Errorf("a heartbeat that failed with %v returns %v", code, got)
		}
	}
	if got := beat(context.DeadlineExceeded); got != nil {
		t.Errorf("a heartbeat that took too long returns %v", got)
	}
	if got := beat(serviceerror.NewNotFound("given to another")); got == nil {
		t.Error("the word of the server is hidden")
	}
	other := status.Error(codes.Unavailable, "no server")
	call(t, h, &workflowservice.RespondActivityTaskCompletedRequest{}, nil, other) // is passed on
}

// TestOnlyTheDeadAreTakenOver: a list whose owner lives is left alone.
func TestOnlyTheDeadAreTakenOver(t *testing.T) {
	folder := t.TempDir()
	var lists []*Held
	for range 3 {
		h, err := Hold(folder)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, h)
	}
	living, dead, heir := lists[0], lists[1], lists[2]
	poll(t, living, "a")
	if err := dead.lock.Close(); err != nil { // the kernel does so when it dies
		t.Fatal(err)
	}
	if given := heir.GiveBack(t.Context(), serve(t, &server{}, nil), "default"); given != (GivenBack{Workers: 1}) {
		t.Errorf("gave back %+v, want what one dead worker held", given)
	}
	if _, err := os.Stat(dead.dir); err == nil {
		t.Error("the list of the dead stays")
	}
	if got := tokens(t, living.dir); !slices.Equal(got, []string{"activity a"}) {
		t.Errorf("the living one holds %q", got)
	}
}
