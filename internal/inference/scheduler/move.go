package scheduler

// placeWaiting starts what waits, as long as something fits. The run that holds least
// goes first; a run whose first trajectory fits nowhere waits for the next event, and
// does not keep the others waiting.
func (s *Scheduler) placeWaiting() {
	if s.queue.waiting == 0 || len(s.engines.list) == 0 {
		return
	}
	for _, r := range s.queue.runs {
		r.blocked = false
	}
	for {
		r := s.queue.leastHolding()
		if r == nil {
			return
		}
		t := r.first()
		e := s.engines.choose(t, s.queue.waiting)
		if e == nil {
			r.blocked = true
			continue
		}
		s.start(t, e)
	}
}

// start gives a waiting trajectory to an engine.
func (s *Scheduler) start(t *task, e *engine) {
	s.queue.dequeue(t)
	t.state = paused
	if t.started {
		s.moves.recomputed += t.context
	} else {
		t.started = true
		t.group.started++
	}
	e.attach(t)
	e.begin(t)
}

// moves bounds what moves cost.
type moves struct {
	cost       Cost
	sampled    int64 // tokens, as passes report them
	recomputed int64 // tokens of KV cache made again
}

// allows reports whether so many tokens of cache may be made again.
func (m *moves) allows(tokens int64) bool {
	return float64(m.recomputed+tokens) <= m.cost.MaxRecompute*float64(m.sampled)
}

// apart is how many tokens a trajectory samples between two moves, at least.
const apart = 1024

// moveAtBoundary moves a trajectory whose tool answered to a roomier engine, when its
// own is expected to overflow. It queues first of all.
func (s *Scheduler) moveAtBoundary(t *task) bool {
	e := t.eng
	if e.top <= e.capacity || !s.moves.allows(t.context) {
		return false
	}
	to := s.engines.roomiest(e)
	if to == nil || to.room() < 2*t.context || t.worst() > to.longest {
		return false
	}
	s.relocate(t, to, Drop)
	return true
}

// relocate takes a trajectory to another engine, which makes its cache again.
func (s *Scheduler) relocate(t *task, to *engine, how Kind) {
	s.out.add(how, t, t.eng)
	t.eng.detach(t)
	s.stats.Moves++
	s.moves.recomputed += t.context
	t.movedAt = t.context
	t.predict(s.curves, t.context, to.passes)
	to.attach(t)
	to.begin(t)
}

// dropHeld drops caches of trajectories whose tools run long while others wait, and
// of any whose tool runs when the engine is about to overflow.
func (s *Scheduler) dropHeld(e *engine) {
	full := e.used()+e.running*slack > e.capacity
	if !full && s.queue.waiting == 0 {
		return
	}
	for i := len(e.rows) - 1; i >= 0; i-- {
		t := e.rows[i]
		if t.state != paused || !(full || s.now-t.pausedAt > s.cfg.Hold) {
			continue
		}
		s.out.add(Drop, t, e)
		s.stats.Drops++
		t.eng.detach(t)
		full = e.used()+e.running*slack > e.capacity
		if !full && s.queue.waiting == 0 {
			return
		}
	}
}

// rebalance moves one trajectory in the middle of its turn, once nothing waits any
// more: from an engine whose passes are slow to the one whose passes are fastest, the
// one that will run longest, where that pays for making its cache again.
func (s *Scheduler) rebalance(e *engine) {
	if s.queue.waiting > 0 || len(e.rows) < 2 {
		return
	}
	var to *engine
	for _, o := range s.engines.list {
		if o != e && o.open() && (to == nil || o.used() < to.used()) {
			to = o
		}
	}
	if to == nil {
		return
	}
	gap := e.used() - to.used()
	if gap*8 < s.cfg.Cost.Base+e.used() {
		return
	}
	var best *task
	for _, t := range e.rows {
		if t.state != running || t.tokens()-t.movedAt < apart && t.movedAt > 0 || t.tokens()*2 > gap {
			continue
		}
		if best == nil || t.demand.left > best.demand.left {
			best = t
		}
	}
	if best == nil || !s.moves.pays(best, gap, to) || !s.moves.allows(best.tokens()) {
		return
	}
	s.relocate(best, to, Stop)
}

// pays compares what a move saves the trajectory with what it costs the others on its
// new engine, in tokens of cache read. It needs twice the cost: the forecast may be wrong.
func (m *moves) pays(t *task, gap int64, to *engine) bool {
	if t.worst() > to.longest {
		return false
	}
	context := t.tokens()
	saved := t.demand.left * float64(gap-context)
	return saved > 2*float64(context*m.cost.Prefill) && context+int64(t.demand.left) < to.room()
}
