package engine

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"temper/internal/inference"
)

// router gives requests to shards. A session stays with its shard while that holds some of its
// blocks. Other requests go to the shard with most free blocks, or wait here in order until a
// shard has space: no shard is idle while another one has a queue.
//
// Invariant: a request is in the router's queue or belongs to one shard.
type router struct {
	limit int // most requests that run or wait

	mu      sync.Mutex
	shards  []*shard
	load    []load
	waiting []*job
	routes  map[string]*route
	// prefixes maps the hash of a long prompt to the shard that saw it last.
	prefixes map[uint64]int
	seed     maphash.Seed
	under    int    // requests that run or wait
	arrived  uint64 // requests so far
}

// load is the state of a shard as the router knows it.
type load struct {
	jobs    int // its requests
	free    int // unheld blocks
	idle    int // blocks of idle sessions
	pending int // blocks for its requests that have not begun
}

// route is the shard of a session.
type route struct {
	shard    int
	jobs     int  // running or waiting requests
	released bool // delete the route when they have ended
}

// longPrefix is the number of tokens from which a prompt goes to the shard of an equal
// beginning: feeding it again costs more than an uneven load.
const longPrefix = 8 * blockTokens

// maxPrefixes bounds the prompts that a router remembers.
const maxPrefixes = 4096

func newRouter(limit int) *router {
	return &router{limit: limit, routes: map[string]*route{}, prefixes: map[uint64]int{}, seed: maphash.MakeSeed()}
}

// add registers a shard, before the first request.
func (d *router) add(s *shard) {
	s.router, s.number = d, len(d.shards)
	s.sequences.forgotten = func(session string) { d.forget(session, s.number) }
	d.shards = append(d.shards, s)
	d.load = append(d.load, load{free: s.sequences.pool.available()})
}

// submit accepts a request.
func (d *router) submit(j *job) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.under >= d.limit {
		return fmt.Errorf("%d requests under way: %w", d.limit, inference.ErrOverloaded)
	}
	d.under++
	d.arrived++
	j.age = d.arrived
	if r := d.routes[j.req.Session]; r != nil {
		d.assign(j, r.shard)
		return nil
	}
	if at := d.choose(j); len(d.waiting) == 0 && at >= 0 {
		d.assign(j, at)
		return nil
	}
	d.waiting = append(d.waiting, j)
	for _, s := range d.shards { // a shard may have space that the router does not know
		s.commands.wake()
	}
	return nil
}

// choose returns the shard for a request without a session, or -1 when it must wait.
func (d *router) choose(j *job) int {
	key, long := d.prefix(j)
	if at, ok := d.prefixes[key]; long && ok && d.load[at].jobs < d.shards[at].sequences.slots {
		return at
	}
	best := -1
	for i, l := range d.load {
		if l.jobs >= d.shards[i].sequences.slots || l.obtainable() < blocksOf(len(j.context)) {
			continue
		}
		if best < 0 || d.better(i, best, j.req.Session != "") {
			best = i
		}
	}
	return best
}

// obtainable returns the number of blocks that a new request can get at once.
func (l load) obtainable() int {
	if l.jobs < evictBelow {
		return l.free + l.idle - l.pending
	}
	return l.free - l.pending
}

// better compares shards: by free blocks for a request of a session, else by requests.
func (d *router) better(i, than int, stays bool) bool {
	a, b := d.load[i], d.load[than]
	byFree, byJobs := (a.free-a.pending)-(b.free-b.pending), b.jobs-a.jobs
	if !stays {
		byFree, byJobs = byJobs, byFree
	}
	return byFree > 0 || byFree == 0 && byJobs > 0
}

// prefix returns a hash of the full blocks of a request's context, and whether they are many.
func (d *router) prefix(j *job) (key uint64, long bool) {
	n := (len(j.req.Tokens) - 1) / blockTokens * blockTokens
	if n < longPrefix {
		return 0, false
	}
	var h maphash.Hash
	h.SetSeed(d.seed)
	for _, t := range j.req.Tokens[:n] {
		maphash.WriteComparable(&h, t)
	}
	return h.Sum64(), true
}

// assign gives a request to a shard.
func (d *router) assign(j *job, at int) {
	d.settle(j, at)
	d.shards[at].commands.deliver(j)
}

// settle records that a request belongs to a shard.
func (d *router) settle(j *job, at int) {
	d.load[at].jobs++
	d.load[at].pending += blocksOf(len(j.req.Tokens))
	if key, long := d.prefix(j); long {
		if len(d.prefixes) >= maxPrefixes {
			clear(d.prefixes)
		}
		d.prefixes[key] = at
	}
	if j.req.Session == "" {
		return
	}
	r := d.routes[j.req.Session]
	if r == nil {
		r = &route{shard: at}
		d.routes[j.req.Session] = r
	}
	r.jobs++
	r.released = false // the release was for earlier requests
	j.route = r
}

// takeNext returns the first waiting request if the shard has space for it, else nil.
func (d *router) takeNext(s *shard, room func(*job) bool) *job {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 || !room(d.waiting[0]) {
		return nil
	}
	j := d.waiting[0]
	d.waiting[0] = nil
	d.waiting = d.waiting[1:]
	if r := d.routes[j.req.Session]; r != nil && r.shard != s.number {
		d.assign(j, r.shard) // its session began in another shard meanwhile
		return nil
	}
	d.settle(j, s.number)
	return j
}

// withdraw removes a waiting request; false when it does not wait.
func (d *router) withdraw(j *job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiting, j)
	if i < 0 {
		return false
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	d.under--
	return true
}

// end records that a request of a shard was answered.
func (d *router) end(j *job, at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under--
	d.load[at].jobs--
	if r := j.route; r != nil {
		if r.jobs--; r.jobs == 0 && r.released {
			delete(d.routes, j.req.Session)
		}
	}
}

// report records the free and idle blocks of a shard, and the blocks of the requests begun
// since the last report. It returns the number of waiting requests.
func (d *router) report(at, free, idle, begun int) (waiting int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &d.load[at]
	l.free, l.idle, l.pending = free, idle, l.pending-begun
	return len(d.waiting)
}

// release forgets a session, and returns its shard, nil for none.
func (d *router) release(session string) *shard {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.routes[session]
	if r == nil {
		return nil
	}
	if r.released = r.jobs > 0; !r.released {
		delete(d.routes, session)
	}
	return d.shards[r.shard]
}

// forget lets a session that lost its blocks in a shard begin in any shard.
func (d *router) forget(session string, at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.routes[session]; r != nil && r.shard == at && r.jobs == 0 {
		delete(d.routes, session)
	}
}

// counts returns the requests that run or wait, and those that wait for a shard.
func (d *router) counts() (under, waiting int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.under, len(d.waiting)
}
