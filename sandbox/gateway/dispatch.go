package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"temper/sandbox"
)

// errShutdown answers the calls that a gateway refuses or gives up when it ends.
var errShutdown = fmt.Errorf("%w: gateway is shutting down", sandbox.ErrUnavailable)

// dispatcher decides where calls run: it admits them, gives free slots of nodes to waiting
// calls, and repeats calls whose node failed. Its lock orders calls, nodes and sessions
// together: a call that is admitted counts against the limits, a node that is gone takes
// nothing, and a session has one call at a time, whatever happens in between.
type dispatcher struct {
	cfg Config
	*background

	mu       sync.Mutex
	closed   bool
	waiting  waitingCalls
	nodes    nodeSet
	sessions sessions
	bytes    int64 // of all calls inside
	running  int
	seq      uint64
	totals   Totals
	answers  rate
}

func newDispatcher(cfg Config, b *background) *dispatcher {
	return &dispatcher{
		cfg: cfg, background: b, sessions: newSessions(cfg.Sessions),
		waiting: waitingCalls{byRun: make(map[string]int)}, nodes: nodeSet{patience: cfg.Patience, noneSince: time.Now()},
	}
}

// close refuses new calls from now on.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// inside returns the number of calls that wait or run.
func (d *dispatcher) inside() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running + d.waiting.n
}

// admit admits c and queues it, or reports false when c has its answer.
func (d *dispatcher) admit(c *call) bool {
	now := time.Now()
	c.size, c.arrived = sizeOf(&c.req), now
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.err = d.admissible(c, now); c.err != nil {
		return false
	}
	if c.req.Session != "" && !d.admitCell(c, now) {
		return false
	}
	d.calls.Add(1)
	d.totals.Admitted++
	d.seq++
	c.seq = d.seq
	d.bytes += c.size
	d.waiting.add(c)
	if c.session == nil || d.sessions.begin(c) {
		d.waiting.enqueue(c)
		d.assign(now)
	}
	return true
}

// admitCell assigns c its session, or reports false when c has its answer.
func (d *dispatcher) admitCell(c *call, now time.Time) bool {
	var reason string
	if reason, c.err = d.sessions.inherit(&c.req); c.err != nil {
		d.totals.Refused++
		return false
	}
	if reason == "" {
		reason = d.sessions.full(&c.req)
	}
	if reason != "" {
		d.totals.Refused++
		c.res = &sandbox.Result{ID: c.req.ID, Status: sandbox.StatusRefused, Reason: reason}
		return false
	}
	if detail := d.sessions.join(c, now); detail != "" {
		d.totals.Overloaded++
		c.err = &sandbox.Overloaded{Detail: detail, RetryAfter: d.retryAfter(now)}
		return false
	}
	return true
}

// admissible returns the error that refuses c, nil to admit it.
func (d *dispatcher) admissible(c *call, now time.Time) error {
	switch {
	case d.closed:
		d.totals.Unavailable++
		return errShutdown
	case d.nodes.unavailable(now):
		d.totals.Unavailable++
		return d.nodes.errUnavailable()
	case d.waiting.n >= d.cfg.Queue:
		d.totals.Overloaded++
		return &sandbox.Overloaded{Detail: fmt.Sprintf("%d calls wait, the limit", d.waiting.n), RetryAfter: d.retryAfter(now)}
	case d.bytes+c.size > d.cfg.QueueBytes:
		d.totals.Overloaded++
		return &sandbox.Overloaded{
			Detail:     fmt.Sprintf("the calls inside hold %d bytes, another %d are above the limit of %d", d.bytes, c.size, d.cfg.QueueBytes),
			RetryAfter: d.retryAfter(now),
		}
	}
	return nil
}

// sizeOf returns the bytes that a call counts against QueueBytes: its texts.
func sizeOf(req *sandbox.Request) int64 {
	n := len(req.ID) + len(req.Fixture) + len(req.Run) + len(req.Session)
	return int64(n) + cellBytes(req) + historyBytes(req)
}

// assign sends waiting calls to nodes while slots are free: the node with the largest free
// share takes the next call.
func (d *dispatcher) assign(now time.Time) {
	for d.waiting.n > 0 {
		d.nodes.quarantine(d.waiting.suspects.n > 0)
		var best *node
		for _, n := range d.nodes.live {
			if (best == nil || n.freer(best)) && n.room(d.cfg.Prefetch, now) && d.waiting.queueFor(n, d.nodes.isolated, now) != nil {
				best = n
			}
		}
		if best == nil {
			return
		}
		d.send(d.waiting.queueFor(best, d.nodes.isolated, now), best)
	}
}

// send grants n to the next call of q.
func (d *dispatcher) send(q *fairQueue, n *node) {
	c := q.pop()
	switch q {
	case &d.waiting.shared:
		n.next = 1
	case &n.bound:
		n.next = 2
	default:
		n.next = 0
	}
	d.waiting.leave(c)
	c.node = n
	d.running++
	n.inFlight++
	n.peak[0] = max(n.peak[0], n.inFlight)
	d.seq++
	n.lastSent = d.seq
	c.granted <- grant{node: n}
}

// settle frees the slot of an attempt that ended, and answers c or queues it again. It
// reports whether c has its answer.
func (d *dispatcher) settle(ctx context.Context, c *call, res *sandbox.Result, err error) bool {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.assign(now) // after the slot is free and the call may be back in a queue
	n := c.node
	d.release(c)
	n.refresh(now)
	if err == nil {
		d.succeed(c, n, res, now)
		d.finish(c)
		return true
	}
	if c.err = d.fail(ctx, c, n, err, now); c.err != nil {
		d.finish(c)
		return true
	}
	if c.attempts < maxAttempts {
		c.returned = true
		d.totals.Retried++
		n.listing.retried++
		d.waiting.add(c)
		d.waiting.enqueue(c)
		return false
	}
	d.exhaust(c, err, now)
	d.finish(c)
	return true
}

// succeed answers c with the result of n.
func (d *dispatcher) succeed(c *call, n *node, res *sandbox.Result, now time.Time) {
	c.res = res
	n.pauses.reset()
	if c.session != nil {
		n.sessions.reset()
		d.sessions.record(c, n, res)
	}
	n.listing.done++
	d.totals.Done++
	d.answers.add(now)
}

// exhaust answers a call that has no attempt left. A call under which every node died, the
// last while it ran alone, was the cause; otherwise the nodes were.
func (d *dispatcher) exhaust(c *call, err error, now time.Time) {
	if c.deaths < maxAttempts {
		d.totals.Unavailable++
		c.err = fmt.Errorf("%w: %d nodes failed the call, the last with: %w", sandbox.ErrUnavailable, c.attempts, err)
		return
	}
	d.totals.Killed++
	d.answers.add(now)
	c.res = &sandbox.Result{
		ID: c.req.ID, Status: sandbox.StatusKilled, ExitCode: 137,
		Reason: "ends the node that runs it, again and again",
	}
}

// fail records why an attempt has no answer. An error that it returns is the answer; nil
// means that the call may be repeated.
func (d *dispatcher) fail(ctx context.Context, c *call, n *node, err error, now time.Time) error {
	switch {
	case ctx.Err() != nil:
		d.totals.Cancelled++
		return ctx.Err()
	case d.life.Err() != nil:
		d.totals.Unavailable++
		return errShutdown
	case errors.Is(err, context.DeadlineExceeded) && late(ctx, now):
		// The node's clock was ahead.
		d.totals.Cancelled++
		return context.DeadlineExceeded
	case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrSessionLost): // the answer of a working node
		n.pauses.reset()
		n.listing.done++
		d.totals.Done++
		d.answers.add(now)
		return err
	case errors.Is(err, sandbox.ErrOverloaded):
		// Another gateway took the slot; the attempt does not count.
		n.listing.overloaded++
		if c.session != nil && c.session.home != n {
			n.sessions.start(now, err)
		} else {
			n.pauses.start(now, err)
		}
		return nil
	}
	n.listing.lastError = err.Error()
	switch {
	case n.leaving || n.load.Draining:
		// The node announced its end: neither a death nor an attempt.
	case !n.alive():
		c.attempts++
		c.deaths++
	default:
		c.attempts++
		n.pauses.start(now, err) // and another node gets the call
	}
	return nil
}

// late reports whether too little time is left for another attempt.
func late(ctx context.Context, now time.Time) bool {
	deadline, ok := ctx.Deadline()
	return ok && deadline.Sub(now) < 10*time.Millisecond
}

// release frees the slot of c.
func (d *dispatcher) release(c *call) {
	n := c.node
	c.node = nil
	d.running--
	n.inFlight--
	if n.leaving && n.inFlight == 0 {
		close(n.empty)
	}
}

// abandon removes a call that ends while no attempt is under way.
func (d *dispatcher) abandon(c *call, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.node != nil: // granted in the same moment
		d.release(c)
	case c.queue != nil:
		c.queue.remove(c)
	}
	d.waiting.leave(c)
	c.err = err
	if errors.Is(err, sandbox.ErrUnavailable) {
		d.totals.Unavailable++
	} else {
		d.totals.Cancelled++
	}
	d.finish(c)
	d.assign(time.Now())
}

// finish releases the counts of c and starts the next call of its session.
func (d *dispatcher) finish(c *call) {
	d.bytes -= c.size
	if c.session == nil {
		return
	}
	if next := d.sessions.leave(c); next != nil {
		d.waiting.enqueue(next)
	}
}

// addNode lets n take calls.
func (d *dispatcher) addNode(n *node) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	n.listing.node = n
	n.listing.lastError = ""
	n.refresh(now)
	d.nodes.live = append(d.nodes.live, n)
	d.nodes.updateNoneSince(now)
	d.assign(now)
}

// removeNode drops n. The attempts on it end by themselves.
func (d *dispatcher) removeNode(n *node) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes.live = slices.DeleteFunc(slices.Clone(d.nodes.live), func(other *node) bool { return other == n })
	n.listing.node = nil
	n.refresh(now) // it may have announced its end
	if !n.leaving && !n.load.Draining && d.life.Err() == nil {
		n.listing.deaths++
	}
	n.bound.moveTo(&d.waiting.openings)
	d.nodes.updateNoneSince(now)
	d.assign(now)
}

// retireNode lets n finish the calls that it has, and gives it no more.
func (d *dispatcher) retireNode(n *node) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	n.leaving = true
	if n.inFlight == 0 {
		close(n.empty)
	}
	n.bound.moveTo(&d.waiting.openings)
	d.nodes.updateNoneSince(now)
	d.assign(now)
}

// refresh reads the announced loads, and fails the waiting calls when no node has taken
// calls for Patience.
func (d *dispatcher) refresh(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nodes.live {
		n.refresh(now)
		if !n.accepting() {
			n.bound.moveTo(&d.waiting.openings)
		}
	}
	d.nodes.updateNoneSince(now)
	if d.nodes.unavailable(now) {
		d.waiting.failAll(d.nodes.errUnavailable())
	}
	d.assign(now)
}

// closeSession forgets a session and reports whether it was known. It calls closeAt, which
// must not block, with the live node that may have the kernel.
func (d *dispatcher) closeSession(key sessionKey, closeAt func(home *node)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions.known[key]
	if s == nil {
		return false
	}
	d.sessions.drop(s)
	if n := s.home; n != nil && n.alive() && !d.closed {
		closeAt(n)
	}
	return true
}
