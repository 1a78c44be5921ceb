package schedulerbench

import (
	"container/heap"
	"math"
	"slices"
)

// An engine makes passes in bursts: as long as no row ends, none comes and the cache has
// room, all passes of a burst follow from one formula. It keeps the cache of a
// trajectory whose tool runs until the room is needed, then preempts the row that came
// last, and queues what does not fit, as servers of language models do.

const burst = 64 // passes between two reports to the scheduler, at most

// row is a trajectory as its engine sees it.
type row struct {
	job     *job
	ends    int64 // pass at which its turn ends
	tokens  int64 // context when the turn began, less the passes made before it
	place   int   // in the heap
	arrived int64
}

type machine struct {
	name    string
	hw      *Hardware
	alive   bool
	passes  int64
	clock   float64 // the time up to which it has computed
	version int     // of its planned burst
	planned int64   // passes of the burst
	rows    rowHeap
	held    int64  // tokens of rows, less passes
	idle    []*job // caches of trajectories that wait for a tool, oldest first
	idling  int64  // tokens of these
	queue   []*job // turns that were asked for and wait for room
	seq     int64
	busy    float64
}

func (m *machine) running() int64 { return m.held + int64(len(m.rows))*m.passes }
func (m *machine) used() int64    { return m.running() + m.idling }

type rowHeap []*row

func (h rowHeap) Len() int { return len(h) }
func (h rowHeap) Less(i, j int) bool {
	return h[i].ends < h[j].ends || h[i].ends == h[j].ends && h[i].arrived < h[j].arrived
}
func (h rowHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *rowHeap) Push(x any) {
	r := x.(*row)
	r.place = len(*h)
	*h = append(*h, r)
}
func (h *rowHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

// span is the time of n passes from now on.
func (m *machine) span(n int64) float64 {
	rows := float64(len(m.rows))
	k := float64(n)
	return k*m.hw.pass(rows, float64(m.running())) + rows*k*(k-1)/2*m.hw.KVBytes/m.hw.Bandwidth
}

// passesBy is how many passes must be made so that time t is reached.
func (m *machine) passesBy(t float64) int64 {
	if t <= m.clock || len(m.rows) == 0 {
		return 0
	}
	a := float64(len(m.rows)) / 2 * m.hw.KVBytes / m.hw.Bandwidth
	b := m.hw.pass(float64(len(m.rows)), float64(m.running())) - a
	d := t - m.clock
	n := int64((-b + math.Sqrt(b*b+4*a*d)) / (2 * a))
	for m.span(n) < d {
		n++
	}
	return min(n, m.planned)
}

// make makes n passes.
func (m *machine) make(n int64) {
	t := m.span(n)
	m.clock += t
	m.busy += t
	m.passes += n
	m.planned -= n
}

// add starts a row, whose cache is made as far as it is missing.
func (m *machine) add(j *job, have int64, count *counts) {
	missing := j.context - have
	t := m.hw.prefill(missing)
	m.clock += t
	m.busy += t
	if again := missing - j.fresh; again > 0 {
		count.recomputed += again
	}
	count.prefilled += missing
	j.fresh = 0
	m.seq++
	r := &row{job: j, ends: m.passes + int64(j.left), tokens: j.context - m.passes, arrived: m.seq}
	j.row = r
	m.held += r.tokens
	heap.Push(&m.rows, r)
}

// remove ends a row and returns its context.
func (m *machine) remove(r *row) {
	heap.Remove(&m.rows, r.place)
	m.held -= r.tokens
	j := r.job
	j.left = int(r.ends - m.passes)
	j.context = r.tokens + m.passes
	j.row = nil
}

// takeIdle takes the cache of a trajectory back, and says how much of it was kept.
func (m *machine) takeIdle(j *job) int64 {
	i := slices.Index(m.idle, j)
	if i < 0 {
		return 0
	}
	m.idle = slices.Delete(m.idle, i, i+1)
	m.idling -= j.cached
	return j.cached
}

// keepIdle keeps the cache of a trajectory whose turn ended.
func (m *machine) keepIdle(j *job) {
	j.cached = j.context
	m.idle = append(m.idle, j)
	m.idling += j.cached
}

// evictIdle gives up the oldest idle cache.
func (m *machine) evictIdle() {
	j := m.idle[0]
	m.idle = m.idle[1:]
	m.idling -= j.cached
}

// admit starts queued turns while there is room for their contexts and one pass.
func (m *machine) admit(count *counts) {
	for len(m.queue) > 0 {
		j := m.queue[0]
		have := int64(0)
		if slices.Contains(m.idle, j) {
			have = j.cached
		}
		need := j.context - have + int64(len(m.rows)) + 1
		for m.used()+need > m.hw.Capacity && len(m.idle) > 0 && (m.idle[0] != j || len(m.idle) > 1) {
			if m.idle[0] == j { // its own cache is of use
				m.idle[0], m.idle[1] = m.idle[1], m.idle[0]
			}
			m.evictIdle()
		}
		if m.used()+need > m.hw.Capacity && len(m.rows) > 0 {
			return
		}
		m.queue = m.queue[1:]
		m.add(j, m.takeIdle(j), count)
	}
}

// plan says how many passes come next; 0 where nothing runs.
func (m *machine) plan(count *counts) {
	m.version++
	m.planned = 0
	m.admit(count)
	for len(m.rows) > 0 && m.hw.Capacity-m.used() < int64(len(m.rows)) {
		if len(m.idle) > 0 {
			m.evictIdle()
			continue
		}
		if len(m.rows) == 1 {
			break // it alone is larger than the engine; let it end
		}
		m.preempt(count)
	}
	if len(m.rows) == 0 {
		return
	}
	n := min(burst, m.rows[0].ends-m.passes)
	if room := (m.hw.Capacity - m.used()) / int64(len(m.rows)); room > 0 {
		n = min(n, room)
	}
	m.planned = max(n, 0)
}

// preempt takes the cache of the row that came last; its turn waits in front.
func (m *machine) preempt(count *counts) {
	last := m.rows[0]
	for _, r := range m.rows {
		if r.arrived > last.arrived {
			last = r
		}
	}
	m.remove(last)
	last.job.preempted = true
	count.preemptions++
	m.queue = slices.Insert(m.queue, 0, last.job)
}
