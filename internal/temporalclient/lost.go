package temporalclient

import (
	"context"
	"sync"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server may die after it wrote down that it gave an activity to this process,
// and before it sent the activity. Then nobody works on it until its heartbeat times
// out. This process can find out earlier: its poll broke, so every activity that the
// server says this process had started by then, and that the process does not have,
// was lost.

// ownActivities knows which activities this process works on, and when a poll for
// them last broke.
type ownActivities struct {
	mu     sync.Mutex
	held   map[string]activityID // by task token
	broken time.Time             // the newest broken poll
	asks   bool                  // the server is being asked what that poll lost
	closed bool
	search func() // nil before there is a server to ask
}

// activityID names an activity as the server lists it.
type activityID struct{ run, id string }

func (o *ownActivities) take(task *workflowservice.PollActivityTaskQueueResponse) {
	if len(task.GetTaskToken()) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil {
		o.held = map[string]activityID{}
	}
	o.held[string(task.GetTaskToken())] = activityID{task.GetWorkflowExecution().GetRunId(), task.GetActivityId()}
}

func (o *ownActivities) drop(token []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, string(token))
}

func (o *ownActivities) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// connectTo says which server to ask.
func (o *ownActivities) connectTo(h *Held, c client.Client, namespace string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	orphans := orphanedTasks{client: c, namespace: namespace, out: &GivenBack{}, lost: func(run string, a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastWorkerIdentity() == identity(h.dir) && o.neverCame(activityID{run, a.GetActivityId()}, a.GetLastStartedTime().AsTime())
	}}
	o.search = func() { h.asking.Go(func() { o.findLost(h.open, orphans) }) }
}

// neverCame reports whether an activity that the server gave to this process at a
// moment was lost with a poll. It compares the clocks of both, which agree on one
// machine. Where they do not, an activity may run into its time-out.
func (o *ownActivities) neverCame(id activityID, started time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, held := range o.held {
		if held == id {
			return false
		}
	}
	return started.Before(o.broken)
}

// noteBrokenPoll looks at a call that failed.
func (h *Held) noteBrokenPoll(req any, err error) {
	if _, ok := req.(*workflowservice.PollActivityTaskQueueRequest); ok && status.Code(err) == codes.Unavailable {
		h.own.pollBroke(time.Now())
	}
}

// pollBroke begins to ask the server what was lost, unless that is under way.
func (o *ownActivities) pollBroke(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = at
	if o.asks || o.closed || o.search == nil {
		return
	}
	o.asks = true
	o.search()
}

const (
	// askPause lies between two questions to a server that is coming up again.
	askPause = 500 * time.Millisecond
	// numAsks is how many answers are awaited: the server's list of workflows is a
	// moment behind.
	numAsks = 5
)

// findLost asks until the server has answered often enough since the last broken poll,
// or ctx ends.
func (o *ownActivities) findLost(ctx context.Context, orphans orphanedTasks) {
	var broken time.Time
	for answers := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askPause):
		}
		err := orphans.giveBackUnnoted(ctx)
		o.mu.Lock()
		if !o.broken.Equal(broken) {
			broken, answers = o.broken, 0
		}
		if err == nil {
			answers++
		}
		if answers >= numAsks {
			o.asks = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
	}
}

// count is the number of activities that this process works on.
func (o *ownActivities) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.held)
}
