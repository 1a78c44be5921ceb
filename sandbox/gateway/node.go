package gateway

import (
	"context"
	"fmt"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// node is one live link with the calls that the gateway has there; dispatcher.mu guards all
// but the first fields.
type node struct {
	listing *listing
	link    Link
	life    context.Context // ends with the link or the gateway, and ends the attempts
	retire  context.CancelFunc

	load     httpapi.Load
	others   int           // calls of other gateways there, estimated from its load
	leaving  bool          // unlisted; finishes its calls
	empty    chan struct{} // closed when a leaving node has no call left
	inFlight int
	peak     [2]int // most calls in flight in this and in the last peakPeriod
	rotated  time.Time
	lastSent uint64

	bound    fairQueue // calls of sessions that live here
	next     int       // the queue that gives the next call
	pauses   pause     // after it refused or failed a call
	sessions pause     // after it refused to open a session
}

// peakPeriod covers the second between two announcements, and their latency.
const peakPeriod = 2 * time.Second

// alive reports whether the link has no error. It is false as soon as the link ends, so
// that no call meets the same death twice.
func (n *node) alive() bool { return n.link.Err() == nil }

// accepting reports whether n may take new calls at all.
func (n *node) accepting() bool {
	return n.load.Slots > 0 && !n.leaving && !n.load.Draining && n.alive()
}

// refresh reads the last announced load. Calls beyond this gateway's recent peak belong to
// other gateways. It evaluates each announcement once: calls sent later are not in it.
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

// free returns the number of unused slots, negative when the prefetch is in use. One slot
// stays for this gateway, so that other gateways cannot shut it out.
func (n *node) free() int { return max(1, n.load.Slots-n.others) - n.inFlight }

// room reports whether n takes another call now.
func (n *node) room(prefetch int, now time.Time) bool {
	return n.free() > -prefetch && !n.pauses.on(now) && n.accepting()
}

// freer reports whether n has a larger share of free slots than than, or the same and an
// older last call.
func (n *node) freer(than *node) bool {
	a, b := n.free()*than.load.Slots, than.free()*n.load.Slots
	return a > b || a == b && n.lastSent < than.lastSent
}

// pause keeps calls away for a time that doubles with each failure.
type pause struct {
	until time.Time
	last  time.Duration
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

func (p *pause) on(now time.Time) bool { return now.Before(p.until) }

// start begins a pause, at least as long as err advises. Failures during a pause belong to
// calls sent before it and do not prolong it.
func (p *pause) start(now time.Time, err error) {
	if p.on(now) {
		return
	}
	p.last = min(max(2*p.last, firstPause), lastPause)
	p.until = now.Add(min(max(p.last, sandbox.RetryAfter(err, 0)), lastPause))
}

// reset ends the pause after a success.
func (p *pause) reset() { *p = pause{} }

// nodeSet holds the live nodes.
type nodeSet struct {
	live      []*node
	isolated  *node     // runs suspects, one at a time; nil while there are none
	noneSince time.Time // since when no node takes calls; zero while one does
	patience  time.Duration
}

// updateNoneSince records since when no node takes calls.
func (s *nodeSet) updateNoneSince(now time.Time) {
	for _, n := range s.live {
		if n.accepting() {
			s.noneSince = time.Time{}
			return
		}
	}
	if s.noneSince.IsZero() {
		s.noneSince = now
	}
}

// unavailable reports whether no node has taken calls for the patience.
func (s *nodeSet) unavailable(now time.Time) bool {
	return !s.noneSince.IsZero() && now.Sub(s.noneSince) >= s.patience
}

// errUnavailable is the answer of calls while unavailable.
func (s *nodeSet) errUnavailable() error {
	return fmt.Errorf("%w: no node has taken calls for %v", sandbox.ErrUnavailable, s.patience)
}

// quarantine isolates one node while there are suspects. The node finishes its calls, then
// runs the suspects one by one and nothing else. One node at most is isolated, so that
// suspects cost no more than its slots.
func (s *nodeSet) quarantine(suspects bool) {
	if s.isolated != nil && (!s.isolated.accepting() || !suspects && s.isolated.inFlight == 0) {
		s.isolated = nil
	}
	if s.isolated != nil || !suspects {
		return
	}
	for _, n := range s.live {
		if n.accepting() && (s.isolated == nil || n.inFlight < s.isolated.inFlight) {
			s.isolated = n
		}
	}
}
