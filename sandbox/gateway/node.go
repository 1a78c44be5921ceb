package gateway

import (
	"context"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// node is one live link and what the gateway has there; all but the first fields
// are guarded by Gateway.mu.
type node struct {
	member *member
	link   Link
	life   context.Context // ends with the link or the gateway; attempts hang on it
	retire context.CancelFunc

	load     httpapi.Load
	others   int           // calls of other gateways there, by its load
	leaving  bool          // unlisted by hand: finishes what it has
	empty    chan struct{} // closed when a leaving node has nothing left
	inFlight int
	peak     [2]int // most calls in flight in this and the last period of peaks
	rotated  time.Time
	lastSent uint64

	bound    turns // calls of sessions that live here
	next     int   // the source that is asked first
	pauses   pause // after it refused or failed a call
	sessions pause // after it refused to open a session
}

// peakPeriod covers the second between two announcements and the way here.
const peakPeriod = 2 * time.Second

// alive is false too for a link whose end its keeper has yet to see, so that a
// call does not meet the same death twice.
func (n *node) alive() bool { return n.link.Err() == nil }

// accepting reports whether new calls may be meant for n at all.
func (n *node) accepting() bool {
	return n.load.Slots > 0 && !n.leaving && !n.load.Draining && n.alive()
}

// refresh takes over what the node announced last. What it has beyond the most
// that this gateway had there lately belongs to other gateways. That is judged
// once for each announcement: calls sent after it are not in it.
func (n *node) refresh(now time.Time) {
	if now.Sub(n.rotated) >= peakPeriod {
		n.rotated = now
		n.peak[1], n.peak[0] = n.peak[0], n.inFlight
	}
	if load := n.link.Load(); load != n.load {
		n.load = load
		n.others = max(0, load.Busy+load.Waiting-max(n.peak[0], n.peak[1]))
	}
}

// free is the number of slots that nobody uses, negative when the prefetch is in
// use. One slot stays for this gateway, so that it is not shut out where others
// came first.
func (n *node) free() int { return max(1, n.load.Slots-n.others) - n.inFlight }

// room reports whether n takes another call now.
func (n *node) room(prefetch int, now time.Time) bool {
	return n.free() > -prefetch && !n.pauses.on(now) && n.accepting()
}

// freer compares by the share of slots that are free, then by who waited longer
// for a call.
func (n *node) freer(than *node) bool {
	a, b := n.free()*than.load.Slots, than.free()*n.load.Slots
	return a > b || a == b && n.lastSent < than.lastSent
}

// pause keeps calls away for a time that doubles from failure to failure.
type pause struct {
	until time.Time
	last  time.Duration
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

func (p *pause) on(now time.Time) bool { return now.Before(p.until) }

// start begins a pause, at least as long as advised; failures that come in while
// it lasts are of calls sent before and do not prolong it.
func (p *pause) start(now time.Time, err error) {
	if p.on(now) {
		return
	}
	p.last = min(max(2*p.last, firstPause), lastPause)
	p.until = now.Add(min(max(p.last, sandbox.RetryAfter(err, 0)), lastPause))
}

// reset is for a node that works.
func (p *pause) reset() { *p = pause{} }
