package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// Stats is a snapshot of a gateway.
type Stats struct {
	Nodes    []NodeStats `json:"nodes"` // by address, also those that are down
	InFlight int         `json:"in_flight"`
	Waiting  int         `json:"waiting"`
	Queue    int         `json:"queue"` // room for waiting calls
	// Bytes are those of the calls inside, waiting or running.
	Bytes      int64 `json:"bytes"`
	QueueBytes int64 `json:"queue_bytes"`
	// Runs are the waiting calls by run, the longest queues first, at most 100.
	Runs         []RunStats `json:"runs"`
	Sessions     int        `json:"sessions"`
	SessionBytes int64      `json:"session_bytes"`
	// DrainRate is the number of calls answered in a second, lately.
	DrainRate float64 `json:"drain_rate"`
	Draining  bool    `json:"draining"`
	Totals    Totals  `json:"totals"`
}

// Totals count calls since the start. Admitted is the sum of Done, Killed,
// Cancelled, the calls inside, and those of Unavailable that were let in.
type Totals struct {
	Admitted    int64 `json:"admitted"`
	Done        int64 `json:"done"`        // answered by a node
	Killed      int64 `json:"killed"`      // answered as the end of every node
	Cancelled   int64 `json:"cancelled"`   // given up by the caller, or out of its time
	Unavailable int64 `json:"unavailable"` // answered with sandbox.ErrUnavailable, let in or not
	Overloaded  int64 `json:"overloaded"`  // not let in, sandbox.ErrOverloaded
	Refused     int64 `json:"refused"`     // not let in, sandbox.StatusRefused
	Retried     int64 `json:"retried"`     // attempts that went back into the queue
	Moved       int64 `json:"moved"`       // cells that went to another node than the one before
}

// NodeStats is one node as this gateway sees it.
type NodeStats struct {
	Address    string `json:"address"`
	Up         bool   `json:"up"`
	Draining   bool   `json:"draining"` // takes nothing new
	Joined     bool   `json:"joined"`   // by itself, with a lease
	Slots      int    `json:"slots"`
	Busy       int    `json:"busy"`      // as the node says, for all gateways
	InFlight   int    `json:"in_flight"` // of this gateway
	Done       int64  `json:"done"`
	Retried    int64  `json:"retried"`    // calls that it did not answer
	Overloaded int64  `json:"overloaded"` // calls that it did not take
	Deaths     int64  `json:"deaths"`     // links that broke
	LastError  string `json:"last_error,omitempty"`
}

// RunStats is the queue of one run.
type RunStats struct {
	Run     string `json:"run"`
	Waiting int    `json:"waiting"`
}

// maxRuns bounds the runs of a snapshot.
const maxRuns = 100

// Stats returns a snapshot.
func (g *Gateway) Stats() Stats {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		Nodes: make([]NodeStats, 0, len(g.members)), InFlight: g.running,
		Waiting: g.waiting, Queue: g.cfg.Queue, Bytes: g.bytes, QueueBytes: g.cfg.QueueBytes,
		Runs:     make([]RunStats, 0, len(g.depth)),
		Sessions: len(g.sessions.known), SessionBytes: g.sessions.bytes,
		DrainRate: g.drained.perSecond(now), Draining: g.closed, Totals: g.totals,
	}
	s.Totals.Moved = g.sessions.moved
	for _, m := range g.members {
		s.Nodes = append(s.Nodes, m.stats())
	}
	slices.SortFunc(s.Nodes, func(a, b NodeStats) int { return strings.Compare(a.Address, b.Address) })
	for run, n := range g.depth {
		s.Runs = append(s.Runs, RunStats{run, n})
	}
	slices.SortFunc(s.Runs, func(a, b RunStats) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Run, b.Run))
	})
	s.Runs = s.Runs[:min(len(s.Runs), maxRuns)]
	return s
}

func (m *member) stats() NodeStats {
	s := NodeStats{
		Address: m.address, Joined: !m.until.IsZero(), Done: m.done, Retried: m.retried,
		Overloaded: m.overloaded, Deaths: m.deaths, LastError: m.lastError,
	}
	if n := m.node; n != nil {
		s.Up, s.Draining = n.alive(), n.leaving || n.load.Draining
		s.Slots, s.Busy, s.InFlight = n.load.Slots, n.load.Busy, n.inFlight
	}
	return s
}

// Load is what the gateway announces to its clients, as a node does.
func (g *Gateway) Load() httpapi.Load {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := httpapi.Load{Busy: g.running, Waiting: g.waiting, Queue: g.cfg.Queue, Draining: g.closed}
	for _, n := range g.nodes {
		if n.accepting() {
			l.Slots += n.load.Slots
		}
	}
	return l
}

// Bounds of the advice to a caller that was not let in.
const (
	minAdvice  = 100 * time.Millisecond
	idleAdvice = time.Second // while nothing is answered at all
	maxAdvice  = 30 * time.Second
)

// advice is the time in which an eighth of the queue drains at the rate of the last
// seconds. That is long enough for room for more than one caller, and short enough
// that nodes do not run dry.
func (g *Gateway) advice(now time.Time) time.Duration {
	rate := g.drained.perSecond(now)
	if rate == 0 {
		return idleAdvice
	}
	eighth := time.Duration(float64(max(g.waiting, 8)) / 8 / rate * float64(time.Second))
	return min(max(eighth, minAdvice), maxAdvice)
}

func (g *Gateway) errForsaken() error {
	return fmt.Errorf("%w: no node has taken calls for %v", sandbox.ErrUnavailable, g.cfg.Patience)
}

// rate counts events of the last seconds, one bucket for each.
type rate struct {
	counts [8]int
	second int64 // of the newest bucket
	first  time.Time
}

func (r *rate) add(now time.Time) {
	r.turn(now)
	if r.first.IsZero() {
		r.first = now
	}
	r.counts[r.second%int64(len(r.counts))]++
}

// turn clears the buckets of the seconds that have passed.
func (r *rate) turn(now time.Time) {
	s := now.Unix()
	for gone := min(s-r.second, int64(len(r.counts))); gone > 0; gone-- {
		r.counts[(s-gone+1)%int64(len(r.counts))] = 0
	}
	r.second = max(r.second, s)
}

func (r *rate) perSecond(now time.Time) float64 {
	r.turn(now)
	n := 0
	for _, c := range r.counts {
		n += c
	}
	window := min(max(now.Sub(r.first), time.Second), time.Duration(len(r.counts))*time.Second)
	return float64(n) / window.Seconds()
}
