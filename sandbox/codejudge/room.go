package codejudge

import (
	"context"
	"errors"
	"sync"
)

// room bounds what all requests together hold. One caller may have half of it, so that
// there is always some for others; requests that do not fit wait.
type room struct {
	most amount

	mu      sync.Mutex
	held    amount
	callers map[string]amount
	// freed is closed when something was given back.
	freed chan struct{}
}

// amount is a number of submissions and bytes of bodies.
type amount struct{ calls, bytes int64 }

func (a amount) plus(b amount) amount  { return amount{a.calls + b.calls, a.bytes + b.bytes} }
func (a amount) minus(b amount) amount { return amount{a.calls - b.calls, a.bytes - b.bytes} }
func (a amount) fits(most amount) bool { return a.calls <= most.calls && a.bytes <= most.bytes }
func (a amount) half() amount          { return amount{a.calls / 2, a.bytes / 2} }

func newRoom(calls, bytes int64) *room {
	return &room{most: amount{calls, bytes}, callers: map[string]amount{}, freed: make(chan struct{})}
}

// errTooMuch refuses what would not fit into an empty room.
var errTooMuch = errors.New("more than one caller may hold")

// take reserves space for a caller. It waits for it until ctx ends. Errors: errTooMuch,
// ctx.Err().
func (r *room) take(ctx context.Context, caller string, a amount) error {
	if !a.fits(r.most.half()) {
		return errTooMuch
	}
	for {
		freed, ok := r.try(caller, a)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try reserves space, or returns what is closed when trying again may help.
func (r *room) try(caller string, a amount) (freed <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held.plus(a).fits(r.most) || !r.callers[caller].plus(a).fits(r.most.half()) {
		return r.freed, false
	}
	r.held = r.held.plus(a)
	r.callers[caller] = r.callers[caller].plus(a)
	return nil, true
}

// give returns what take reserved.
func (r *room) give(caller string, a amount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = r.held.minus(a)
	if r.callers[caller] = r.callers[caller].minus(a); r.callers[caller] == (amount{}) {
		delete(r.callers, caller)
	}
	close(r.freed)
	r.freed = make(chan struct{})
}
