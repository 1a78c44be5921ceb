package gateway

import "container/list"

// turns is a queue in which runs take turns: each gives one call, then the next
// run does. Inside a run the order is that of arrival. The zero value is empty.
type turns struct {
	lines map[string]*line
	order list.List // of *line, the next one to give a call first
	n     int
}

// line is the queue of one run, a list through the calls themselves: a waiting
// call costs no allocation here, and leaves from the middle at once.
type line struct {
	run         string
	first, last *call
	place       *list.Element
}

func (t *turns) push(c *call) {
	l := t.enter(c)
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

// pushFront puts a call back before those that have not had a node yet, in the
// order of arrival among those that came back too.
func (t *turns) pushFront(c *call) {
	l := t.enter(c)
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

// enter returns the line of c's run, which joins the turns when it is new.
func (t *turns) enter(c *call) *line {
	if t.lines == nil {
		t.lines = make(map[string]*line)
	}
	l := t.lines[c.req.Run]
	if l == nil {
		l = &line{run: c.req.Run}
		l.place = t.order.PushBack(l)
		t.lines[l.run] = l
	}
	c.queue, c.line = t, l
	t.n++
	return l
}

// peek returns the call whose turn it is, nil when none waits.
func (t *turns) peek() *call {
	if front := t.order.Front(); front != nil {
		return front.Value.(*line).first //nolint:forcetypeassert // the list holds nothing else
	}
	return nil
}

// pop takes the call whose turn it is; its run goes to the end of the turns.
func (t *turns) pop() *call {
	c := t.peek()
	if c == nil {
		return nil
	}
	l := c.line
	t.remove(c)
	if l.first != nil {
		t.order.MoveToBack(l.place)
	}
	return c
}

// remove takes c out from wherever it is.
func (t *turns) remove(c *call) {
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
	t.n--
	if l.first == nil {
		t.order.Remove(l.place)
		delete(t.lines, l.run)
	}
}

// moveTo empties t into the front of to. Each line goes from its end, so that
// every call finds its place at once.
func (t *turns) moveTo(to *turns) {
	for t.n > 0 {
		c := t.peek().line.last
		t.remove(c)
		to.pushFront(c)
	}
}
