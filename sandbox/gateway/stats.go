package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"temper/sandbox/httpapi"
)

// Stats is a snapshot of a gateway.
type Stats struct {
	Nodes    []NodeStats `json:"nodes"` // by address, including nodes that are down
	InFlight int         `json:"in_flight"`
	Waiting  int         `json:"waiting"`
	Queue    int         `json:"queue"` // largest number of waiting calls
	// Bytes counts the texts of the calls inside, waiting or running.
	Bytes      int64 `json:"bytes"`
	QueueBytes int64 `json:"queue_bytes"`
	// Runs holds the waiting calls by run, the longest queues first, at most 100.
	Runs         []RunStats `json:"runs"`
	Sessions     int        `json:"sessions"`
	SessionBytes int64      `json:"session_bytes"`
	// DrainRate is the recent number of answers a second.
	DrainRate float64 `json:"drain_rate"`
	Draining  bool    `json:"draining"`
	Totals    Totals  `json:"totals"`
}

// Totals counts calls since the start. Admitted is the sum of Done, Killed,
// Cancelled, the calls inside, and the admitted ones of Unavailable.
type Totals struct {
	Admitted    int64 `json:"admitted"`
	Done        int64 `json:"done"`        // answered by a node
	Killed      int64 `json:"killed"`      // failed after killing several nodes
	Cancelled   int64 `json:"cancelled"`   // given up by the caller, or past its deadline
	Unavailable int64 `json:"unavailable"` // answered with sandbox.ErrUnavailable, admitted or not
	Overloaded  int64 `json:"overloaded"`  // not admitted, sandbox.ErrOverloaded
	Refused     int64 `json:"refused"`     // not admitted, sandbox.StatusRefused
	Retried     int64 `json:"retried"`     // attempts after which the call was queued again
	Moved       int64 `json:"moved"`       // cells that ran on another node than the cell before
}

// NodeStats is one node as this gateway sees it.
type NodeStats struct {
	Address    string `json:"address"`
	Up         bool   `json:"up"`
	Draining   bool   `json:"draining"` // takes no new calls
	Joined     bool   `json:"joined"`   // listed itself, with a lease
	Slots      int    `json:"slots"`
	Busy       int    `json:"busy"`      // as the node announces, for all gateways
	InFlight   int    `json:"in_flight"` // of this gateway
	Done       int64  `json:"done"`
	Retried    int64  `json:"retried"`    // calls that it failed to answer
	Overloaded int64  `json:"overloaded"` // calls that it refused
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

// stats returns a snapshot of the gateway with the nodes of r.
func (d *dispatcher) stats(r *registry) Stats {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{
		Nodes: make([]NodeStats, 0, len(r.listed)), InFlight: d.running,
		Waiting: d.waiting.n, Queue: d.cfg.Queue, Bytes: d.bytes, QueueBytes: d.cfg.QueueBytes,
		Runs:     make([]RunStats, 0, len(d.waiting.byRun)),
		Sessions: len(d.sessions.known), SessionBytes: d.sessions.bytes,
		DrainRate: d.answers.perSecond(now), Draining: d.closed, Totals: d.totals,
	}
	s.Totals.Moved = d.sessions.moved
	for _, m := range r.listed {
		s.Nodes = append(s.Nodes, m.stats())
	}
	slices.SortFunc(s.Nodes, func(a, b NodeStats) int { return strings.Compare(a.Address, b.Address) })
	for run, n := range d.waiting.byRun {
		s.Runs = append(s.Runs, RunStats{run, n})
	}
	slices.SortFunc(s.Runs, func(a, b RunStats) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Run, b.Run))
	})
	s.Runs = s.Runs[:min(len(s.Runs), maxRuns)]
	return s
}

func (m *listing) stats() NodeStats {
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

// load returns the load that the gateway announces.
func (d *dispatcher) load() httpapi.Load {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := httpapi.Load{Busy: d.running, Waiting: d.waiting.n, Queue: d.cfg.Queue, Draining: d.closed}
	for _, n := range d.nodes.live {
		if n.accepting() {
			l.Slots += n.load.Slots
		}
	}
	return l
}

// Bounds of retryAfter.
const (
	minRetryAfter  = 100 * time.Millisecond
	idleRetryAfter = time.Second // while no call is answered
	maxRetryAfter  = 30 * time.Second
)

// retryAfter returns the time in which an eighth of the queue drains at the recent rate:
// long enough to make room for several callers, short enough that nodes do not run dry.
func (d *dispatcher) retryAfter(now time.Time) time.Duration {
	rate := d.answers.perSecond(now)
	if rate == 0 {
		return idleRetryAfter
	}
	eighth := time.Duration(float64(max(d.waiting.n, 8)) / 8 / rate * float64(time.Second))
	return min(max(eighth, minRetryAfter), maxRetryAfter)
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
