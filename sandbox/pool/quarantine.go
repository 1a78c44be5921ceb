package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"temper/sandbox"
)

// quarantine holds the interpreters of suspects. Each starts with its first call and ends
// when its last call leaves.
type quarantine struct {
	life  context.Context // life of the pool: an interpreter may outlive the call that starts it
	start Start

	mu           sync.Mutex
	interpreters []*quarantined
	room         int           // for more of them
	freed        chan struct{} // closed and replaced when a call leaves
}

// quarantined is one interpreter of a quarantine.
type quarantined struct {
	ready     chan struct{} // closed when in and err are set
	in        Interpreter
	err       error
	exclusive bool // for a single call
	inside    int  // guarded by quarantine.mu
}

// enter returns an interpreter for a suspect, an exclusive one when alone. The caller calls
// leave.
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
			c.in, c.err = q.start(q.life) //nolint:contextcheck // it may also serve other calls
			close(c.ready)
		default:
			<-c.ready
		}
		if c.err == nil {
			return c, nil
		}
		q.leave(c)
		return nil, fmt.Errorf("%w: %v", sandbox.ErrUnavailable, c.err) //nolint:errorlint // this death does not count against the call
	}
}

// find returns an interpreter with room, with fresh if the caller has to start it, or a
// channel that closes when a call leaves.
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

// ended reports whether the interpreter has died or did not start.
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

// leave removes a call from its interpreter; the last call ends the interpreter.
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
