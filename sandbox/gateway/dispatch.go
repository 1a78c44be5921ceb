package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
)

// errShutdown answers the calls that a gateway refuses or gives up when it ends.
var errShutdown = fmt.Errorf("%w: gateway is shutting down", sandbox.ErrUnavailable)

// admit lets c in and sends it on its way. Otherwise c has its answer.
func (g *Gateway) admit(c *call) bool {
	now := time.Now()
	c.size, c.arrived = size(&c.req), now
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.err = g.admissible(c, now); c.err != nil {
		return false
	}
	if c.req.Session != "" && !g.admitCell(c, now) {
		return false
	}
	g.calls.Add(1)
	g.totals.Admitted++
	g.seq++
	c.seq = g.seq
	g.bytes += c.size
	g.wait(c)
	if c.session == nil || g.sessions.begin(c) {
		g.enqueue(c)
		g.dispatch(now)
	}
	return true
}

// admitCell gives c its session.
func (g *Gateway) admitCell(c *call, now time.Time) bool {
	var reason string
	if reason, c.err = g.sessions.inherit(&c.req); c.err != nil {
		g.totals.Refused++
		return false
	}
	if reason == "" {
		reason = g.sessions.full(&c.req)
	}
	if reason != "" {
		g.totals.Refused++
		c.res = &sandbox.Result{ID: c.req.ID, Status: sandbox.StatusRefused, Reason: reason}
		return false
	}
	if detail := g.sessions.join(c, now); detail != "" {
		g.totals.Overloaded++
		c.err = &sandbox.Overloaded{Detail: detail, RetryAfter: g.advice(now)}
		return false
	}
	return true
}

// admissible says why a call cannot come in.
func (g *Gateway) admissible(c *call, now time.Time) error {
	switch {
	case g.closed:
		g.totals.Unavailable++
		return errShutdown
	case g.forsaken(now):
		g.totals.Unavailable++
		return g.errForsaken()
	case g.waiting >= g.cfg.Queue:
		g.totals.Overloaded++
		return &sandbox.Overloaded{Detail: fmt.Sprintf("%d calls wait, the limit", g.waiting), RetryAfter: g.advice(now)}
	case g.bytes+c.size > g.cfg.QueueBytes:
		g.totals.Overloaded++
		return &sandbox.Overloaded{
			Detail:     fmt.Sprintf("the calls inside hold %d bytes, another %d are above the limit of %d", g.bytes, c.size, g.cfg.QueueBytes),
			RetryAfter: g.advice(now),
		}
	}
	return nil
}

// size is what a call is charged: its texts and what is kept beside them.
func size(req *sandbox.Request) int64 {
	n := len(req.ID) + len(req.Fixture) + len(req.Run) + len(req.Session)
	return int64(n) + cellBytes(req) + historyBytes(req)
}

// enqueue puts c into the queue of the calls that may run on the same nodes. A call
// that comes back goes before those that have not had a node.
func (g *Gateway) enqueue(c *call) {
	q := &g.shared
	if c.session != nil {
		q = &g.openings
		if home := c.session.home; home != nil && home.accepting() {
			q = &home.bound
		}
	}
	if c.deaths >= suspicious {
		q = &g.suspects
	}
	if c.attempts > 0 || c.returned {
		q.pushFront(c)
	} else {
		q.push(c)
	}
}

// dispatch hands out calls while there are free slots: the node with the largest free
// share takes the next call, whoever sent it.
func (g *Gateway) dispatch(now time.Time) {
	for g.waiting > 0 {
		g.quarantine()
		var best *node
		for _, n := range g.nodes {
			if (best == nil || n.freer(best)) && n.room(g.cfg.Prefetch, now) && g.source(n, now) != nil {
				best = n
			}
		}
		if best == nil {
			return
		}
		g.send(g.source(best, now), best)
	}
}

// quarantine sets one node aside while there are suspects. The node finishes what it
// has, then gets the suspects one by one and nothing else. It is one node at most, so
// that suspects cost no more than its slots.
func (g *Gateway) quarantine() {
	if g.ward != nil && (!g.ward.accepting() || g.suspects.n == 0 && g.ward.inFlight == 0) {
		g.ward = nil
	}
	if g.ward != nil || g.suspects.n == 0 {
		return
	}
	for _, n := range g.nodes {
		if n.accepting() && (g.ward == nil || n.inFlight < g.ward.inFlight) {
			g.ward = n
		}
	}
}

// source returns the queue from which n takes its next call, nil for none. The
// queues are asked in turn, so that none of them waits for another to be empty.
func (g *Gateway) source(n *node, now time.Time) *turns {
	if n == g.ward {
		if n.inFlight == 0 && g.suspects.n > 0 {
			return &g.suspects
		}
		return nil
	}
	for i := range 3 {
		switch (n.next + i) % 3 {
		case 0:
			if g.shared.n > 0 {
				return &g.shared
			}
		case 1:
			if n.bound.n > 0 {
				return &n.bound
			}
		default:
			if g.openings.n > 0 && !n.sessions.on(now) {
				return &g.openings
			}
		}
	}
	return nil
}

// send grants the next call of q to n.
func (g *Gateway) send(q *turns, n *node) {
	c := q.pop()
	switch q {
	case &g.shared:
		n.next = 1
	case &n.bound:
		n.next = 2
	default:
		n.next = 0
	}
	g.unwait(c)
	c.node = n
	g.running++
	n.inFlight++
	n.peak[0] = max(n.peak[0], n.inFlight)
	g.seq++
	n.lastSent = g.seq
	c.granted <- grant{node: n}
}

// settle frees the slot of an attempt that ended and decides what it was: the
// answer, or a reason to put the call back. It reports whether c has its answer.
func (g *Gateway) settle(ctx context.Context, c *call, res *sandbox.Result, err error) bool {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.dispatch(now) // after the slot is free and the call, perhaps, back
	n := c.node
	g.release(c)
	n.refresh(now)
	if err == nil {
		g.answered(c, n, res, now)
		g.leave(c)
		return true
	}
	if c.err = g.failed(ctx, c, n, err, now); c.err != nil {
		g.leave(c)
		return true
	}
	if c.attempts < maxAttempts {
		c.returned = true
		g.totals.Retried++
		n.member.retried++
		g.wait(c)
		g.enqueue(c)
		return false
	}
	g.giveUpOn(c, err, now)
	g.leave(c)
	return true
}

// answered gives c the result of n.
func (g *Gateway) answered(c *call, n *node, res *sandbox.Result, now time.Time) {
	c.res = res
	n.pauses.reset()
	if c.session != nil {
		n.sessions.reset()
		g.sessions.record(c, n, res)
	}
	n.member.done++
	g.totals.Done++
	g.drained.add(now)
}

// giveUpOn answers a call that has no attempt left. One that was alone on the
// last of the nodes that died under it is to blame; otherwise the nodes are.
func (g *Gateway) giveUpOn(c *call, err error, now time.Time) {
	if c.deaths < maxAttempts {
		g.totals.Unavailable++
		c.err = fmt.Errorf("%w: %d nodes failed the call, the last with: %w", sandbox.ErrUnavailable, c.attempts, err)
		return
	}
	g.totals.Killed++
	g.drained.add(now)
	c.res = &sandbox.Result{
		ID: c.req.ID, Status: sandbox.StatusKilled, ExitCode: 137,
		Reason: "ends the node that runs it, again and again",
	}
}

// failed notes why an attempt has no answer. The error that it returns is the
// answer; without one the call is to be repeated, if it has attempts left.
func (g *Gateway) failed(ctx context.Context, c *call, n *node, err error, now time.Time) error {
	switch {
	case ctx.Err() != nil:
		g.totals.Cancelled++
		return ctx.Err()
	case g.life.Err() != nil:
		g.totals.Unavailable++
		return errShutdown
	case errors.Is(err, context.DeadlineExceeded) && late(ctx, now):
		// The node's clock was the first to say so.
		g.totals.Cancelled++
		return context.DeadlineExceeded
	case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrSessionLost): // the answer of a node that works
		n.pauses.reset()
		n.member.done++
		g.totals.Done++
		g.drained.add(now)
		return err
	case errors.Is(err, sandbox.ErrOverloaded):
		// Somebody else was faster to the slot; that is no fault of the call.
		n.member.overloaded++
		if c.session != nil && c.session.home != n {
			n.sessions.start(now, err)
		} else {
			n.pauses.start(now, err)
		}
		return nil
	}
	n.member.lastError = err.Error()
	switch {
	case n.leaving || n.load.Draining:
		// It said that it would go: neither suspicious nor an attempt.
	case !n.alive():
		c.attempts++
		c.deaths++
	default:
		c.attempts++
		n.pauses.start(now, err) // and the call goes elsewhere
	}
	return nil
}

// late reports whether the caller has too little time left for another try.
func late(ctx context.Context, now time.Time) bool {
	deadline, ok := ctx.Deadline()
	return ok && deadline.Sub(now) < 10*time.Millisecond
}

// release frees the slot of c.
func (g *Gateway) release(c *call) {
	n := c.node
	c.node = nil
	g.running--
	n.inFlight--
	if n.leaving && n.inFlight == 0 {
		close(n.empty)
	}
}

// abandon removes a call that ends while no attempt is under way.
func (g *Gateway) abandon(c *call, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case c.node != nil: // granted in the same moment
		g.release(c)
	case c.queue != nil:
		c.queue.remove(c)
	}
	g.unwait(c)
	c.err = err
	if errors.Is(err, sandbox.ErrUnavailable) {
		g.totals.Unavailable++
	} else {
		g.totals.Cancelled++
	}
	g.leave(c)
	g.dispatch(time.Now())
}

// leave ends what the gateway keeps of c and lets its session go on.
func (g *Gateway) leave(c *call) {
	g.bytes -= c.size
	if c.session == nil {
		return
	}
	if next := g.sessions.leave(c); next != nil {
		g.enqueue(next)
	}
}

// wait counts c among those that wait, in a queue or behind their own session.
func (g *Gateway) wait(c *call) {
	c.waits = true
	g.waiting++
	g.depth[c.req.Run]++
}

func (g *Gateway) unwait(c *call) {
	if !c.waits {
		return
	}
	c.waits = false
	g.waiting--
	if g.depth[c.req.Run]--; g.depth[c.req.Run] == 0 {
		delete(g.depth, c.req.Run)
	}
}
