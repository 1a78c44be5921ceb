package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"temper/sandbox"
)

// ward has the interpreters of suspects. One starts when it is needed and ends when the
// last of its calls leaves.
type quarantine struct {
	life  context.Context // of the pool: what one suspect started may serve others
	start Start

	mu           sync.Mutex
	interpreters []*quarantined
	room         int           // for more of them
	freed        chan struct{} // closed and replaced when there is room, also in one of cells
}

// cell is one interpreter of a ward.
type quarantined struct {
	ready     chan struct{} // closed when the next two are known
	in        Interpreter
	err       error
	exclusive bool // for one call
	inside    int  // guarded by ward.mu
}

// enter returns a cell for a suspect, for itself when alone. The caller leaves it.
func (q *quarantine) enter(ctx context.Context, giveUp <-chan time.Time, alone bool) (*quarantined, error) {
	for {
		c, fresh, freed := q.find(alone)
		switch {
		case c == nil:
			select {
			case <-freed:
				continue
			case <-giveUp:
				return nil, fmt.Errorf("%w: interpreters died, and no other was free within %v to run the call again", sandbox.ErrUnavailable, quarantineWait)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case fresh:
			c.in, c.err = q.start(q.life) //nolint:contextcheck // it may serve other calls than that of ctx
			close(c.ready)
		default:
			<-c.ready
		}
		if c.err == nil {
			return c, nil
		}
		q.leave(c)
		return nil, fmt.Errorf("%w: %v", sandbox.ErrUnavailable, c.err) //nolint:errorlint // the death of this one is no death under the call
	}
}

// find returns a cell with room, one that the caller has to start when fresh, or
// the channel that says when to look again.
func (q *quarantine) find(alone bool) (c *quarantined, fresh bool, freed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.interpreters {
		if !alone && !c.exclusive && c.inside < suspectsTogether && !c.ended() {
			c.inside++
			return c, false, nil
		}
	}
	if q.room == 0 {
		return nil, false, q.freed
	}
	q.room--
	c = &quarantined{ready: make(chan struct{}), exclusive: alone, inside: 1}
	q.interpreters = append(q.interpreters, c)
	return c, true, nil
}

// ended reports whether the interpreter did not start, or has died.
func (c *quarantined) ended() bool {
	select {
	case <-c.ready:
	default:
		return false
	}
	if c.err != nil {
		return true
	}
	select {
	case <-c.in.Done():
		return true
	default:
		return false
	}
}

// leave takes a call out of its cell; the last one ends the interpreter.
func (q *quarantine) leave(c *quarantined) {
	q.mu.Lock()
	c.inside--
	last := c.inside == 0
	if last {
		q.interpreters = slices.DeleteFunc(q.interpreters, func(other *quarantined) bool { return other == c })
	}
	q.mu.Unlock()
	if last && c.err == nil {
		c.in.Close()
	}
	q.mu.Lock()
	if last {
		q.room++
	}
	close(q.freed)
	q.freed = make(chan struct{})
	q.mu.Unlock()
}
