package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// longAfter is the processor time after which a program counts as long.
const longAfter = 250 * time.Millisecond

// places decides which calls may run. There are two bounds: slots for all running programs,
// and a smaller bound for computing ones. A program counts as computing from its start, as
// long as it wants a core; a sleeping program does not. So computing programs start a few
// at a time and finish soon, and sleeping programs block no other. Half of the bound is
// kept for programs that have not computed for long: a program that becomes long while that
// many long programs compute is paused until one of them ends or sleeps.
type places struct {
	slots, most, cores, room int // bounds: most for computing programs, room for waiting calls

	mu        sync.Mutex
	inside    int // calls that have a slot
	computing int
	long      int       // computing programs that are long
	starved   int       // repeated calls that starved before
	waiting   []*waiter // in order of arrival
	again     []*waiter // hold a slot and wait to compute with fewer others; served first
	stopped   []*place  // paused long programs
}

// waiter is a call that waits for a place.
type waiter struct{ granted chan struct{} }

// place is the place of one call, from admit to free.
type place struct {
	of    *places
	cells bool // it is for cells, which cannot be paused

	starved  bool
	computes bool          // this and the fields below are guarded by of.mu
	long     bool          //
	resume   chan struct{} // not nil while its program is paused; closed to resume it
}

// admit takes a place, and waits in the bounded queue when there is none. retryAfter
// returns the time after which a refused caller may return.
func (p *places) admit(ctx context.Context, retryAfter func() time.Duration) (*place, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if len(p.waiting)+len(p.again) == 0 && p.open() {
		p.inside++
		p.computing++
		p.mu.Unlock()
		return &place{of: p, computes: true}, nil
	}
	if len(p.waiting) >= p.room {
		inside := p.inside
		p.mu.Unlock()
		return nil, &sandbox.Overloaded{
			Detail: fmt.Sprintf("%d programs run and %d wait", inside, p.room), RetryAfter: retryAfter(),
		}
	}
	w := &waiter{granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	pl := &place{of: p, computes: true}
	if !p.await(ctx, &p.waiting, w) {
		return nil, ctx.Err()
	}
	if ctx.Err() != nil {
		pl.free()
		return nil, ctx.Err()
	}
	return pl, nil
}

// await waits until w has its place. It returns false when ctx ends first, and then w never
// gets one.
func (p *places) await(ctx context.Context, list *[]*waiter, w *waiter) bool {
	select {
	case <-w.granted:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(*list, w)
	if at < 0 {
		return true // granted meanwhile
	}
	*list = slices.Delete(*list, at, at+1)
	p.grant() // the calls behind it may have waited only for it
	return false
}

// open reports whether another call may begin; mu is held.
func (p *places) open() bool {
	half := p.most / 2
	return p.inside < p.slots && p.computing-min(p.long, half) < p.most-half && p.besideStarved()
}

// besideStarved reports whether another program may compute beside the repeated calls that
// starved; mu is held.
func (p *places) besideStarved() bool { return p.starved == 0 || p.computing < p.cores }

// grant admits the calls that may now run; mu is held.
func (p *places) grant() {
	for len(p.again) > 0 {
		if p.computing >= p.cores {
			return // a core becomes free soon, since nothing else begins
		}
		p.computing++
		p.starved++
		close(p.again[0].granted)
		p.again = slices.Delete(p.again, 0, 1)
	}
	for len(p.stopped) > 0 && p.long < p.most/2 && p.besideStarved() {
		pl := p.stopped[0]
		close(pl.resume)
		p.removeStopped(pl)
		pl.computes = true
		p.count(pl, 1)
	}
	for len(p.waiting) > 0 && p.open() {
		p.inside++
		p.computing++
		close(p.waiting[0].granted)
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
}

// observe records the demand of the place's program. A program that wakes up counts even
// above the bound, since it already runs. A program that becomes long above the bound has
// to pause until the returned channel is closed.
func (pl *place) observe(d jail.Demand) (resume <-chan struct{}) {
	p := pl.of
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeStopped(pl) // a pause of the place has ended
	long := d.Used >= longAfter
	if d.Core == pl.computes && long == pl.long {
		return nil
	}
	p.count(pl, -1)
	defer p.grant()
	if d.Core && long && !pl.long && !pl.cells && p.long >= p.most/2 {
		pl.computes, pl.long, pl.resume = false, true, make(chan struct{})
		p.stopped = append(p.stopped, pl)
		return pl.resume
	}
	pl.computes, pl.long = d.Core, long
	p.count(pl, 1)
	return nil
}

// removeStopped removes a place from the paused ones; mu is held.
func (p *places) removeStopped(pl *place) {
	if pl.resume != nil {
		pl.resume = nil
		p.stopped = slices.DeleteFunc(p.stopped, func(other *place) bool { return other == pl })
	}
}

// count adds or removes the program of a place in the counters; mu is held.
func (p *places) count(pl *place, n int) {
	if !pl.computes {
		return
	}
	p.computing += n
	if pl.long {
		p.long += n
	}
}

// waitForFewer waits until fewer programs compute than there are cores. No other call
// begins meanwhile, and until the place is free at most as many programs compute as there
// are cores.
func (pl *place) waitForFewer(ctx context.Context) error {
	pl.observe(jail.Demand{})
	p := pl.of
	w := &waiter{granted: make(chan struct{})}
	p.mu.Lock()
	p.again = append(p.again, w)
	p.grant()
	p.mu.Unlock()
	if !p.await(ctx, &p.again, w) {
		return ctx.Err()
	}
	p.mu.Lock()
	pl.computes, pl.starved = true, true // grant has already counted it
	p.mu.Unlock()
	return ctx.Err()
}

// free releases the place.
func (pl *place) free() {
	pl.observe(jail.Demand{})
	p := pl.of
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
	if pl.starved {
		p.starved--
	}
	p.grant()
}

// load returns how many calls are inside and how many wait.
func (p *places) load() (inside, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inside, len(p.waiting)
}
