package temporalclient

import (
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
)

// TestStuckWorker has neither a poll nor an activity for a long time.
func TestStuckWorker(t *testing.T) {
	h, err := Hold(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	longAgo := func() {
		h.polls.mu.Lock()
		defer h.polls.mu.Unlock()
		h.polls.last = time.Now().Add(-2 * maxUnpolled)
	}
	check := func(what string, stuck bool) {
		t.Helper()
		if err := h.Stuck(); (err != nil) != stuck {
			t.Errorf("%s: %v, stuck should be %v", what, err, stuck)
		}
	}
	check("before its first poll", false)
	poll(t, h, "a")
	longAgo()
	check("with an activity", false)
	call(t, h, &workflowservice.RespondActivityTaskCompletedRequest{TaskToken: []byte("a")}, nil, nil)
	check("with nothing", true)
	end := h.polls.begin(&workflowservice.PollWorkflowTaskQueueRequest{})
	check("with a poll", false)
	end()
	check("right after a poll", false)
	longAgo()
	h.polls.begin(&workflowservice.RecordActivityTaskHeartbeatRequest{})
	check("with another call", true)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
