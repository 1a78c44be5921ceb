package codejudge

import (
	"container/heap"
	"context"
	"sync"
)

// Sizes of the line.
const (
	firstLimit = 256  // calls given to the executor before it has shown what it takes
	mostLimit  = 8192 // whatever it takes
	// shortestRound is how many calls end between two attempts of a narrow line to
	// grow: each attempt lets two calls race for one slot.
	shortestRound = 16
)

// line lets calls through to the executor: callers take turns, and the calls of one are
// served first come first served, so that a batch of 100,000 does not stand before all
// others. It lets through
// as many at once as the executor was seen to admit: the number grows while calls
// wait and none is refused, and a refusal sets it to what the executor held then.
type line struct {
	mu    sync.Mutex
	limit int
	busy  int
	grown int  // calls ended since the limit last grew
	slow  bool // a refusal was seen: grow by a part for each full round only
	next  uint64
	turn  uint64            // the latest that was served
	last  map[string]uint64 // the last turn of each caller that has calls in line
	queue queue
}

// place is a call in line; it keeps its turn and its number when it has to wait again.
type place struct {
	caller string
	turn   uint64        // of its caller
	number uint64        // among all calls
	index  int           // in the heap; -1 outside
	ready  chan struct{} // closed when the call may go
}

func newLine() *line { return &line{limit: firstLimit, last: map[string]uint64{}} }

// ticket returns the place of a new call, behind every earlier one of its caller.
func (l *line) ticket(caller string) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	p := &place{caller: caller, turn: max(l.turn, l.last[caller]) + 1, number: l.next, index: -1}
	l.last[caller] = p.turn
	return p
}

// served moves on to the turn of p. A caller whose last turn it was is as a new one.
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
			l.last[p.caller]-- // those before it keep their turns
		}
	} else { // its turn came at the same moment: pass it on
		l.busy--
		l.advance()
	}
	return ctx.Err()
}

// leave ends what enter began; refused says that the executor was overloaded. It
// reports whether a refused call has to pause before it enters again. It need not
// while other calls of the line run: it waits for one of them to end anyway.
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

// advance lets calls go while there is room. The caller holds mu.
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

// waiting returns the number of calls in line.
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
