package scheduler

import (
	"container/heap"
	"slices"
)

// A run's trajectories wait by problem: those of one problem are alike until they
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
	belief  belief
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

func (s *queue) groupOf(t *task) *group {
	key := groupKey{run: t.Run, step: t.Step, problem: t.Problem}
	if t.known {
		key.only = t.ID
	}
	if g := s.groups[key]; g != nil {
		return g
	}
	r := s.byRun[t.Run]
	if r == nil {
		r = &run{name: t.Run}
		s.byRun[t.Run] = r
		s.runs = append(s.runs, r)
	}
	g := &group{key: key, run: r, stage: s.curves.stage(stageKey{t.Run, t.Stage}, t.Limit), seq: t.seq, place: -1}
	g.belief = s.curves.believe(g.stage, problemKey{t.Run, t.Problem})
	switch {
	case t.known:
		g.expect = float64(t.Length)
	case s.adaptive():
		g.expect = g.belief.expect(g.stage)
	}
	s.groups[key] = g
	return g
}

func (s *queue) enqueue(t *task, g *group) {
	t.group, t.state = g, waiting
	g.open++
	g.run.open++
	g.waiting = append(g.waiting, t)
	if g.place < 0 {
		heap.Push(&g.run.heap, g)
	}
	s.waiting++
}

// putBack queues a trajectory again that has started before: by step, longest first.
func (s *queue) putBack(t *task) {
	t.state = waiting
	s.curves.predict(&t.plan, t.group.stage, &t.group.belief, t, t.context, 0)
	r := t.group.run
	at, _ := slices.BinarySearchFunc(r.back, t, func(a, b *task) int {
		switch {
		case a.Step != b.Step:
			return a.Step - b.Step
		case a.plan.left != b.plan.left:
			if a.plan.left > b.plan.left {
				return -1
			}
			return 1
		}
		return int(a.seq - b.seq)
	})
	r.back = slices.Insert(r.back, at, t)
	s.waiting++
}

// dequeue takes a trajectory out of the queue.
func (s *queue) dequeue(t *task) {
	s.waiting--
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

// forget ends a trajectory: it gives back what it reserved, and its name.
func (s *queue) forget(t *task) {
	switch {
	case t.eng != nil:
		s.detach(t)
	case t.state == waiting:
		s.dequeue(t)
	}
	delete(s.tasks, t.ID)
	g := t.group
	g.open--
	g.run.open--
	if g.open == 0 {
		delete(s.groups, g.key)
		if s.adaptive() && !t.known {
			s.curves.learn(g.stage, problemKey{g.key.run, g.key.problem}, g.ends)
		}
	}
	if g.run.open == 0 {
		delete(s.byRun, g.run.name)
		s.runs = slices.DeleteFunc(s.runs, func(r *run) bool { return r == g.run })
	}
}

// noteSurvival tells a trajectory's group how far it has come.
func (s *queue) noteSurvival(t *task) {
	if t.known {
		return
	}
	at := s.curves.spanOf(t.tokens() - int64(t.Prompt))
	if at <= t.span {
		return
	}
	g := t.group
	g.belief.survived(g.stage, phaseOf(t.calls), t.span, at)
	t.span = at
	s.reorder(g)
}

// noteEnd tells a trajectory's group where it ended.
func (s *queue) noteEnd(t *task) {
	if t.known || !s.adaptive() {
		return
	}
	s.noteSurvival(t)
	g, length, phase := t.group, t.context-int64(t.Prompt), phaseOf(t.calls)
	if length < int64(t.Limit) { // the limit ends a trajectory of any class
		g.belief.ended(g.stage, phase, s.curves.spanOf(length))
	}
	g.ends = append(g.ends, end{length: length, marks: t.marks, phase: phase})
	s.reorder(g)
}

func (s *queue) reorder(g *group) {
	if g.place < 0 {
		return
	}
	g.expect = g.belief.expect(g.stage)
	heap.Fix(&g.run.heap, g.place)
}
