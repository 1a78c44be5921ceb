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

// When a server dies between writing down that it gave an activity to this process
// and sending it, nobody works on it until its heartbeat times out. This process
// can tell: its poll broke, and what the server takes for started by it before
// that, and what it does not have, was lost.

// mine is which activities this process has, and when a poll for them last broke.
type mine struct {
	mu     sync.Mutex
	held   map[string]activityID // by task token
	broken time.Time             // the newest broken poll
	asks   bool                  // somebody asks the server about it
	closed bool
	search func() // nil before there is a server to ask
}

// activityID names an activity in the way that the server lists it.
type activityID struct{ run, id string }

func (m *mine) take(task *workflowservice.PollActivityTaskQueueResponse) {
	if len(task.GetTaskToken()) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		m.held = map[string]activityID{}
	}
	m.held[string(task.GetTaskToken())] = activityID{task.GetWorkflowExecution().GetRunId(), task.GetActivityId()}
}

func (m *mine) drop(token []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, string(token))
}

func (m *mine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// serve says which server to ask.
func (m *mine) serve(h *Held, c client.Client, namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := estate{client: c, namespace: namespace, out: &GivenBack{}, lost: func(run string, a *workflowpb.PendingActivityInfo) bool {
		return a.GetLastWorkerIdentity() == identity(h.dir) && m.neverCame(activityID{run, a.GetActivityId()}, a.GetLastStartedTime().AsTime())
	}}
	m.search = func() { h.asking.Go(func() { m.seek(h.open, e) }) }
}

// neverCame reports whether an activity that the server started at a moment for
// this process was lost with a poll. The clocks of both have to agree to
// milliseconds, as they do on one machine: one that is ahead loses a hint.
func (m *mine) neverCame(id activityID, started time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, held := range m.held {
		if held == id {
			return false
		}
	}
	return started.Before(m.broken)
}

// brokenPoll is told of a call that failed.
func (h *Held) brokenPoll(req any, err error) {
	if _, ok := req.(*workflowservice.PollActivityTaskQueueRequest); ok && status.Code(err) == codes.Unavailable {
		h.mine.broke(time.Now())
	}
}

// broke begins to ask the server what was lost, unless that is under way.
func (m *mine) broke(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = at
	if m.asks || m.closed || m.search == nil {
		return
	}
	m.asks = true
	m.search()
}

const (
	// askPause lies between questions to a server that comes up again.
	askPause = 500 * time.Millisecond
	// numAsks is how often one that answers is asked: its list of workflows is late
	// by moments.
	numAsks = 5
)

// seek asks until the server has answered often enough since the last broken poll,
// or ctx ends.
func (m *mine) seek(ctx context.Context, e estate) {
	var broken time.Time
	for answers := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askPause):
		}
		err := e.unnoted(ctx)
		m.mu.Lock()
		if !m.broken.Equal(broken) {
			broken, answers = m.broken, 0
		}
		if err == nil {
			answers++
		}
		if answers >= numAsks {
			m.asks = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}
