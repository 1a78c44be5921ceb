package gateway

import (
	"container/list"
	"time"
)

// fairQueue is a queue in which runs take turns, one call each. The calls of a run are in
// order of arrival. The zero value is empty.
type fairQueue struct {
	lines map[string]*runLine
	order list.List // of *runLine, the run whose turn is next first
	n     int
}

// runLine is the queue of one run, a list linked through the calls: a waiting call needs no
// allocation and leaves the middle in constant time.
type runLine struct {
	run         string
	first, last *call
	place       *list.Element
}

func (q *fairQueue) push(c *call) {
	l := q.enter(c)
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

// pushFront queues a call that was on a node before the calls that were not, in order of
// arrival among the former.
func (q *fairQueue) pushFront(c *call) {
	l := q.enter(c)
	c.returned = true
	var before *call
	after := l.first
	for after != nil && after.returned && after.seq < c.seq {
		before, after = after, after.next
	}
	c.prev, c.next = before, after
	if before == nil {
		l.first = c
	} else {
		before.next = c
	}
	if after == nil {
		l.last = c
	} else {
		after.prev = c
	}
}

// enter returns the line of c's run, adding a new one at the end of the turns.
func (q *fairQueue) enter(c *call) *runLine {
	if q.lines == nil {
		q.lines = make(map[string]*runLine)
	}
	l := q.lines[c.req.Run]
	if l == nil {
		l = &runLine{run: c.req.Run}
		l.place = q.order.PushBack(l)
		q.lines[l.run] = l
	}
	c.queue, c.line = q, l
	q.n++
	return l
}

// peek returns the next call, nil when none waits.
func (q *fairQueue) peek() *call {
	if front := q.order.Front(); front != nil {
		return front.Value.(*runLine).first //nolint:forcetypeassert // the list holds nothing else
	}
	return nil
}

// pop removes and returns the next call; its run goes to the end of the turns.
func (q *fairQueue) pop() *call {
	c := q.peek()
	if c == nil {
		return nil
	}
	l := c.line
	q.remove(c)
	if l.first != nil {
		q.order.MoveToBack(l.place)
	}
	return c
}

// remove removes c, wherever it is in the queue.
func (q *fairQueue) remove(c *call) {
	l := c.line
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next, c.queue, c.line = nil, nil, nil, nil
	q.n--
	if l.first == nil {
		q.order.Remove(l.place)
		delete(q.lines, l.run)
	}
}

// moveTo moves all calls to the front of to. It takes each line from its end, so that every
// call finds its place in constant time.
func (q *fairQueue) moveTo(to *fairQueue) {
	for q.n > 0 {
		c := q.peek().line.last
		q.remove(c)
		to.pushFront(c)
	}
}

// waitingCalls holds the calls that wait for a node, in one queue for each kind of node
// that they may run on; the calls bound to one node wait in node.bound.
type waitingCalls struct {
	shared   fairQueue      // calls that any node may run
	openings fairQueue      // calls of sessions that have no node
	suspects fairQueue      // calls under which nodes died; only nodeSet.isolated takes them
	n        int            // in all queues, and behind their own session
	byRun    map[string]int // the same by run
}

// add counts c among the calls that wait, in a queue or behind their own session.
func (w *waitingCalls) add(c *call) {
	c.waits = true
	w.n++
	w.byRun[c.req.Run]++
}

// leave ends the count of c.
func (w *waitingCalls) leave(c *call) {
	if !c.waits {
		return
	}
	c.waits = false
	w.n--
	if w.byRun[c.req.Run]--; w.byRun[c.req.Run] == 0 {
		delete(w.byRun, c.req.Run)
	}
}

// enqueue puts c into the queue of the calls that may run on the same nodes. A call that
// was on a node before goes ahead of calls that were not.
func (w *waitingCalls) enqueue(c *call) {
	q := &w.shared
	if c.session != nil {
		q = &w.openings
		if home := c.session.home; home != nil && home.accepting() {
			q = &home.bound
		}
	}
	if c.deaths >= suspicious {
		q = &w.suspects
	}
	if c.attempts > 0 || c.returned {
		q.pushFront(c)
	} else {
		q.push(c)
	}
}

// queueFor returns the queue from which n takes its next call, nil for none. The queues
// take turns, so that none waits until another is empty.
func (w *waitingCalls) queueFor(n, isolated *node, now time.Time) *fairQueue {
	if n == isolated {
		if n.inFlight == 0 && w.suspects.n > 0 {
			return &w.suspects
		}
		return nil
	}
	for i := range 3 {
		switch (n.next + i) % 3 {
		case 0:
			if w.shared.n > 0 {
				return &w.shared
			}
		case 1:
			if n.bound.n > 0 {
				return &n.bound
			}
		default:
			if w.openings.n > 0 && !n.sessions.on(now) {
				return &w.openings
			}
		}
	}
	return nil
}

// failAll ends the wait of all queued calls with err.
func (w *waitingCalls) failAll(err error) {
	for _, q := range []*fairQueue{&w.shared, &w.openings, &w.suspects} {
		for c := q.pop(); c != nil; c = q.pop() {
			w.leave(c)
			c.granted <- grant{err: err}
		}
	}
}
