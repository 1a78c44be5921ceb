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

// places decides which calls may run. There are two bounds: slots for all programs
// that run, and a smaller one for those that compute. A program counts as computing
// from its start, for as long as it wants a core; one that sleeps does not. So what
// computes is begun a few at a time and soon over, and sleepers block nobody. Half of
// what may compute is kept for programs that have not computed for long yet: a program
// that becomes long when as many are stops until one of these has ended or sleeps.
type places struct {
	slots, most, cores, room int // most programs compute, room calls wait

	mu        sync.Mutex
	inside    int // calls that have a slot
	computing int
	long      int       // of these
	starved   int       // calls that run again because they starved
	waiting   []*waiter // the first to come is the first
	again     []*waiter // have a slot, and want to compute among few; before the others
	stopped   []*place  // long programs that wait to go on
}

// waiter is a call that waits for its place.
type waiter struct{ granted chan struct{} }

// place is that of one call, from admit to free.
type place struct {
	of    *places
	cells bool // it is for cells, which cannot be stopped

	starved  bool
	computes bool          // this and the next are guarded by of.mu
	long     bool          //
	resume   chan struct{} // not nil while its program is stopped
}

// admit takes a place, waiting in the bounded queue when there is none; advice says
// when a caller may come back that is refused.
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

// await returns when w has its place; false when ctx ends first and it never gets one.
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
	p.grant() // those behind it may have waited for it alone
	return false
}

// open reports whether one more may begin; mu is held.
func (p *places) open() bool {
	half := p.most / 2
	return p.inside < p.slots && p.computing-min(p.long, half) < p.most-half && p.besideStarved()
}

// quiet reports whether one more may compute beside those that starved before; mu is held.
func (p *places) besideStarved() bool { return p.starved == 0 || p.computing < p.cores }

// grant lets in who can come in; mu is held.
func (p *places) grant() {
	for len(p.again) > 0 {
		if p.computing >= p.cores {
			return // soon, since nothing else begins
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

// note says what the program of the place wants and has used. One that wakes up is
// counted even where that is one too many: it runs already. One that becomes long where
// that is one too many has to stop until the channel is closed.
func (pl *place) observe(d jail.Demand) (resume <-chan struct{}) {
	p := pl.of
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeStopped(pl) // what was stopped is no more
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

// unstop takes a place out of those whose programs are stopped; mu is held.
func (p *places) removeStopped(pl *place) {
	if pl.resume != nil {
		pl.resume = nil
		p.stopped = slices.DeleteFunc(p.stopped, func(other *place) bool { return other == pl })
	}
}

// count adds or removes what a place stands for; mu is held.
func (p *places) count(pl *place, n int) {
	if !pl.computes {
		return
	}
	p.computing += n
	if pl.long {
		p.long += n
	}
}

// amongFew waits until fewer programs compute than there are cores. Nothing else begins
// meanwhile, and until the place is free no more than there are cores.
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
	pl.computes, pl.starved = true, true // as grant has counted
	p.mu.Unlock()
	return ctx.Err()
}

// free gives the place back.
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
