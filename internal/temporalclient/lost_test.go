package temporalclient

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestWhatABrokenPollLostIsGivenBack: the server died after it had written down who
// has an activity, and before it could send it.
func TestWhatABrokenPollLostIsGivenBack(t *testing.T) {
	h, err := Hold(filepath.Join(t.TempDir(), "trainer"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	pending := func(id, worker string, started time.Time) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{
			ActivityId: id, State: enums.PENDING_ACTIVITY_STATE_STARTED, LastWorkerIdentity: worker, LastStartedTime: timestamppb.New(started),
		}
	}
	me := identity(h.dir)
	s := &server{pending: []*workflowpb.PendingActivityInfo{
		pending("lost", me, began.Add(-time.Second)),
		pending("in my hands", me, began.Add(-time.Second)),
		pending("on its way", me, began.Add(time.Minute)),
		pending("of another", "7@other", began.Add(-time.Second)),
	}}
	h.GiveBack(t.Context(), serve(t, s, h), "default")
	call(t, h, &workflowservice.PollActivityTaskQueueRequest{}, &workflowservice.PollActivityTaskQueueResponse{
		TaskToken: []byte("t"), ActivityId: "in my hands", WorkflowExecution: &commonpb.WorkflowExecution{RunId: "r"},
	}, nil)
	for _, harmless := range []error{status.Error(codes.DeadlineExceeded, "nothing to do"), errors.New("another")} {
		call(t, h, &workflowservice.PollActivityTaskQueueRequest{}, nil, harmless)
	}
	if h.own.asks {
		t.Error("a poll that found nothing counts as broken")
	}
	call(t, h, &workflowservice.PollActivityTaskQueueRequest{}, nil, status.Error(codes.Unavailable, "connection reset"))
	for asks := true; asks; { // ends by itself
		time.Sleep(10 * time.Millisecond)
		h.own.mu.Lock()
		asks = h.own.asks
		h.own.mu.Unlock()
	}
	want := "w/lost " + ErrTypeWorkerDied
	if slices.ContainsFunc(s.failed, func(id string) bool { return id != want }) || len(s.failed) != numAsks {
		t.Errorf("failed %q, want only %q, once for each of %d questions", s.failed, want, numAsks)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	call(t, h, &workflowservice.PollActivityTaskQueueRequest{}, nil, status.Error(codes.Unavailable, "connection reset"))
	if h.own.asks {
		t.Error("asks after its end")
	}
}
