package temporalclient

import (
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
)

// maxUnpolled is how long a worker with nothing to do may go without a poll. The
// SDK's longest pause between two polls is ten seconds.
const maxUnpolled = time.Minute

// polls knows whether a worker asks for work.
type polls struct {
	mu   sync.Mutex
	open int       // polls under way
	last time.Time // when one ended last; zero before the first
}

// begin notes a call; the returned function notes its end.
func (p *polls) begin(req any) (end func()) {
	switch req.(type) {
	case *workflowservice.PollActivityTaskQueueRequest, *workflowservice.PollWorkflowTaskQueueRequest:
	default:
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open--
		p.last = time.Now()
	}
}

// silent is for how long nobody has polled; 0 before the first poll.
func (p *polls) silent() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 || p.last.IsZero() {
		return 0
	}
	return time.Since(p.last)
}

// Stuck returns an error when the worker neither has an activity nor asks for one.
// A server that is away is no reason: a poll waits for it.
func (h *Held) Stuck() error {
	if silent := h.polls.silent(); silent > maxUnpolled && h.own.count() == 0 {
		return fmt.Errorf("no poll for %v and nothing to work on", silent.Round(time.Second))
	}
	return nil
}
