package scheduler

import (
	"container/heap"
	"fmt"
	"slices"
)

// A run's trajectories wait by problem: the trajectories of one problem are alike until they
// start. Older steps go first, then what is expected to be longest, then the problem of
// which fewest have started, so that each problem soon has something to learn from.

type groupKey struct {
	run     string
	step    int
	problem string
	only    string // the trajectory, where lengths are known and each has its own place
}

// group is the trajectories of one problem in one step.
type group struct {
	key     groupKey
	run     *run
	stage   *stage
	belief  classWeights
	waiting []*task // in the order in which they came
	open    int     // trajectories that have not ended
	started int
	expect  float64
	seq     int64
	place   int // in its run's heap, -1 outside
	ends    []end
}

// run is the queue of one run.
type run struct {
	name string
	heap groupHeap
	// back are trajectories that have started and lost their engine; they go first.
	back    []*task
	held    int64 // tokens that the run has reserved
	blocked bool  // its first trajectory fits nowhere now
	open    int
}

func (r *run) waits() bool { return len(r.back) > 0 || len(r.heap) > 0 }

// first is the trajectory that the run wants to start next.
func (r *run) first() *task {
	if len(r.back) > 0 {
		return r.back[0]
	}
	return r.heap[0].waiting[0]
}

type groupHeap []*group

func (h groupHeap) Len() int { return len(h) }

func (h groupHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.key.step != b.key.step:
		return a.key.step < b.key.step
	case a.expect != b.expect:
		return a.expect > b.expect
	case a.started != b.started:
		return a.started < b.started
	}
	return a.seq < b.seq
}

func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *groupHeap) Push(x any) {
	g := x.(*group)
	g.place = len(*h)
	*h = append(*h, g)
}

func (h *groupHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.place = -1
	return g
}

// reorder puts the group where its expected length belongs in its run.
func (g *group) reorder() {
	if g.place < 0 {
		return
	}
	g.expect = g.belief.expect(g.stage)
	heap.Fix(&g.run.heap, g.place)
}

// queue knows every trajectory that has not ended, and the order of those that wait.
type queue struct {
	adaptive bool
	curves   *curves
	tasks    map[string]*task
	groups   map[groupKey]*group
	runs     []*run // in the order of their first trajectory
	byRun    map[string]*run
	waiting  int
	seq      int64
}

func newQueue(cfg Config, c *curves) *queue {
	return &queue{adaptive: cfg.adaptive(), curves: c, tasks: map[string]*task{}, groups: map[groupKey]*group{}, byRun: map[string]*run{}}
}

// find returns the trajectory of an event. It refuses what an older attempt says.
func (q *queue) find(what, id string, attempt, context int) (*task, error) {
	t := q.tasks[id]
	switch {
	case t == nil:
		return nil, fmt.Errorf("%s: trajectory %q: %w", what, id, ErrUnknown)
	case attempt != t.attempt:
		return nil, fmt.Errorf("%s: trajectory %q, attempt %d, is at attempt %d: %w", what, id, attempt, t.attempt, ErrStale)
	case context < t.Prompt || int64(context) > t.worst():
		return nil, fmt.Errorf("%s: trajectory %q has %d tokens, want %d to %d: %w", what, id, context, t.Prompt, t.worst(), ErrInvalid)
	}
	return t, nil
}

func (q *queue) groupOf(t *task) *group {
	key := groupKey{run: t.Run, step: t.Step, problem: t.Problem}
	if t.known {
		key.only = t.ID
	}
	if g := q.groups[key]; g != nil {
		return g
	}
	r := q.byRun[t.Run]
	if r == nil {
		r = &run{name: t.Run}
		q.byRun[t.Run] = r
		q.runs = append(q.runs, r)
	}
	g := &group{key: key, run: r, stage: q.curves.stage(stageKey{t.Run, t.Stage}, t.Limit), seq: t.seq, place: -1}
	g.belief = q.curves.priorWeights(g.stage, problemKey{t.Run, t.Problem})
	switch {
	case t.known:
		g.expect = float64(t.Length)
	case q.adaptive:
		g.expect = g.belief.expect(g.stage)
	}
	q.groups[key] = g
	return g
}

func (q *queue) enqueue(t *task, g *group) {
	t.group, t.state = g, waiting
	g.open++
	g.run.open++
	g.waiting = append(g.waiting, t)
	if g.place < 0 {
		heap.Push(&g.run.heap, g)
	}
	q.waiting++
}

// requeue queues a trajectory again that has started before: by step, longest first.
func (q *queue) requeue(t *task) {
	t.state = waiting
	t.predict(q.curves, t.context, 0)
	r := t.group.run
	at, _ := slices.BinarySearchFunc(r.back, t, func(a, b *task) int {
		switch {
		case a.Step != b.Step:
			return a.Step - b.Step
		case a.demand.left != b.demand.left:
			if a.demand.left > b.demand.left {
				return -1
			}
			return 1
		}
		return int(a.seq - b.seq)
	})
	r.back = slices.Insert(r.back, at, t)
	q.waiting++
}

// dequeue takes a trajectory out of the queue.
func (q *queue) dequeue(t *task) {
	q.waiting--
	g := t.group
	if i := slices.Index(g.run.back, t); i >= 0 {
		g.run.back = slices.Delete(g.run.back, i, i+1)
		return
	}
	i := slices.Index(g.waiting, t)
	g.waiting = slices.Delete(g.waiting, i, i+1)
	switch {
	case len(g.waiting) == 0:
		heap.Remove(&g.run.heap, g.place)
	default:
		heap.Fix(&g.run.heap, g.place)
	}
}

// remove ends a trajectory: it gives back what it reserved, and its name.
func (q *queue) remove(t *task) {
	switch {
	case t.eng != nil:
		t.eng.detach(t)
	case t.state == waiting:
		q.dequeue(t)
	}
	delete(q.tasks, t.ID)
	g := t.group
	g.open--
	g.run.open--
	if g.open == 0 {
		delete(q.groups, g.key)
		if q.adaptive && !t.known {
			q.curves.learn(g.stage, problemKey{g.key.run, g.key.problem}, g.ends)
		}
	}
	if g.run.open == 0 {
		delete(q.byRun, g.run.name)
		q.runs = slices.DeleteFunc(q.runs, func(r *run) bool { return r == g.run })
	}
}

// leastHolding returns the run that holds least and has something waiting; nil for none.
func (q *queue) leastHolding() *run {
	var best *run
	for _, r := range q.runs {
		if r.waits() && !r.blocked && (best == nil || r.held < best.held) {
			best = r
		}
	}
	return best
}
