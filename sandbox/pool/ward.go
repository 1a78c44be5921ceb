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
type ward struct {
	life  context.Context // of the pool: what one suspect started may serve others
	start Start

	mu    sync.Mutex
	cells []*cell
	room  int           // for more of them
	freed chan struct{} // closed and replaced when there is room, also in one of cells
}

// cell is one interpreter of a ward.
type cell struct {
	ready  chan struct{} // closed when the next two are known
	in     Interpreter
	err    error
	lone   bool // for one call
	inside int  // guarded by ward.mu
}

// enter returns a cell for a suspect, for itself when alone. The caller leaves it.
func (d *ward) enter(ctx context.Context, giveUp <-chan time.Time, alone bool) (*cell, error) {
	for {
		c, fresh, freed := d.find(alone)
		switch {
		case c == nil:
			select {
			case <-freed:
				continue
			case <-giveUp:
				return nil, fmt.Errorf("%w: interpreters died, and no other was free within %v to run the call again", sandbox.ErrUnavailable, wardWait)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case fresh:
			c.in, c.err = d.start(d.life) //nolint:contextcheck // it may serve other calls than that of ctx
			close(c.ready)
		default:
			<-c.ready
		}
		if c.err == nil {
			return c, nil
		}
		d.leave(c)
		return nil, fmt.Errorf("%w: %v", sandbox.ErrUnavailable, c.err) //nolint:errorlint // the death of this one is no death under the call
	}
}

// find returns a cell with room, one that the caller has to start when fresh, or
// the channel that says when to look again.
func (d *ward) find(alone bool) (c *cell, fresh bool, freed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.cells {
		if !alone && !c.lone && c.inside < together && !c.ended() {
			c.inside++
			return c, false, nil
		}
	}
	if d.room == 0 {
		return nil, false, d.freed
	}
	d.room--
	c = &cell{ready: make(chan struct{}), lone: alone, inside: 1}
	d.cells = append(d.cells, c)
	return c, true, nil
}

// ended reports whether the interpreter did not start, or has died.
func (c *cell) ended() bool {
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
func (d *ward) leave(c *cell) {
	d.mu.Lock()
	c.inside--
	last := c.inside == 0
	if last {
		d.cells = slices.DeleteFunc(d.cells, func(other *cell) bool { return other == c })
	}
	d.mu.Unlock()
	if last && c.err == nil {
		c.in.Close()
	}
	d.mu.Lock()
	if last {
		d.room++
	}
	close(d.freed)
	d.freed = make(chan struct{})
	d.mu.Unlock()
}
