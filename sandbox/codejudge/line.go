package codejudge

import (
	"container/heap"
	"context"
	"sync"
)

// Sizes of the queue.
const (
	firstLimit = 256  // concurrent calls before the executor has shown its capacity
	mostLimit  = 8192 // largest number of concurrent calls
	// shortestRound is the number of calls that end between two attempts of a small limit to
	// grow: each attempt makes two calls compete for one slot.
	shortestRound = 16
)

// line is the queue in front of the executor. Callers take turns, and the calls of one
// caller are first come, first served, so that a batch of 100,000 does not block all other
// callers. It admits as many calls at once as the executor accepts: the limit grows while
// calls wait and none is refused, and a refusal sets it to the number of calls that the
// executor then held.
type line struct {
	mu    sync.Mutex
	limit int
	busy  int
	grown int  // calls ended since the limit last grew
	slow  bool // after a refusal: grow by a fraction, and only once in a full round
	next  uint64
	turn  uint64            // the latest served turn
	last  map[string]uint64 // the last turn of each caller with calls in the queue
	queue queue
}

// place is a call in the queue; it keeps its turn and its number when it has to wait again.
type place struct {
	caller string
	turn   uint64        // turn of its caller
	number uint64        // order among all calls
	index  int           // in the heap; -1 outside
	ready  chan struct{} // closed when the call may run
}

func newLine() *line { return &line{limit: firstLimit, last: map[string]uint64{}} }

// ticket returns the place of a new call, after every earlier one of its caller.
func (l *line) ticket(caller string) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	p := &place{caller: caller, turn: max(l.turn, l.last[caller]) + 1, number: l.next, index: -1}
	l.last[caller] = p.turn
	return p
}

// served advances to the turn of p. A caller without further turns counts as new.
func (l *line) served(p *place) {
	l.turn = max(l.turn, p.turn)
	if l.last[p.caller] <= l.turn {
		delete(l.last, p.caller)
	}
}

// enter waits for the turn of p. After a nil error the caller calls leave.
func (l *line) enter(ctx context.Context, p *place) error {
	l.mu.Lock()
	p.ready = make(chan struct{})
	heap.Push(&l.queue, p)
	l.advance()
	ready := p.ready
	l.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.index >= 0 {
		heap.Remove(&l.queue, p.index)
		if l.last[p.caller] == p.turn {
			l.last[p.caller]-- // earlier calls keep their turns
		}
	} else { // its turn has just come: pass it on
		l.busy--
		l.advance()
	}
	return ctx.Err()
}

// leave ends what enter began; refused means that the executor was overloaded. It reports
// whether a refused call has to pause before it enters again. No pause is needed while
// other calls of the queue run, since the call then waits until one of them ends.
func (l *line) leave(refused bool) (pause bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.grown++
	switch {
	case refused:
		l.limit, l.slow, l.grown = max(1, min(l.limit, l.busy)), true, 0
	case len(l.queue) == 0:
	case !l.slow:
		l.limit = min(mostLimit, l.limit+1)
	case l.grown >= max(l.limit, shortestRound):
		l.limit, l.grown = min(mostLimit, l.limit+1+l.limit/8), 0
	}
	pause = refused && l.busy == 0
	l.advance()
	return pause
}

// advance admits calls while there is room. The caller holds mu.
func (l *line) advance() {
	for l.busy < l.limit && len(l.queue) > 0 {
		p, _ := heap.Pop(&l.queue).(*place)
		l.busy++
		l.served(p)
		close(p.ready)
	}
	if len(l.queue) == 0 {
		clear(l.last)
	}
}

// waiting returns the number of queued calls.
func (l *line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// queue is a heap of places by turn, then by number.
type queue []*place

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool {
	return q[i].turn < q[j].turn || q[i].turn == q[j].turn && q[i].number < q[j].number
}

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if p, ok := x.(*place); ok {
		p.index = len(*q)
		*q = append(*q, p)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	p.index = -1
	return p
}
