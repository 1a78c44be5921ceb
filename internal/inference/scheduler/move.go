package scheduler

// apart is how many tokens a trajectory samples between two moves, at least.
const apart = 1024

// leaveAtBoundary moves a trajectory whose tool answered to a roomier engine, when its
// own is expected to overflow. It queues first of all.
func (s *mover) leaveAtBoundary(t *task) bool {
	e := t.eng
	if e.top <= e.capacity || !s.mayMake(t.context) {
		return false
	}
	to := s.roomiest(e)
	if to == nil || to.room() < 2*t.context || t.worst() > to.longest {
		return false
	}
	s.relocate(t, to, Drop)
	return true
}

// roomiest is the engine with most room, other than one.
func (s *mover) roomiest(not *engine) *engine {
	var best *engine
	for _, e := range s.engines {
		if e != not && e.open() && (best == nil || e.room() > best.room()) {
			best = e
		}
	}
	return best
}

// mayMake says whether so many tokens of cache may be made again.
func (s *mover) mayMake(tokens int64) bool {
	return float64(s.again+tokens) <= s.cfg.Cost.MaxRecompute*float64(s.sampled)
}

// relocate takes a trajectory to another engine, which makes its cache again.
func (s *mover) relocate(t *task, to *engine, how Kind) {
	s.decide(how, t, t.eng)
	s.detach(t)
	s.stats.Moves++
	s.again += t.context
	t.movedAt = t.context
	s.curves.predict(&t.plan, t.group.stage, &t.group.belief, t, t.context, to.passes)
	s.attach(t, to)
	s.begin(t)
}

// giveUpHeld drops caches of trajectories whose tools run long while others wait, and
// of any whose tool runs when the engine is about to overflow.
func (s *mover) giveUpHeld(e *engine) {
	full := e.used()+e.running*slack > e.capacity
	if !full && s.waiting == 0 {
		return
	}
	for i := len(e.rows) - 1; i >= 0; i-- {
		t := e.rows[i]
		if t.state != paused || !(full || s.now-t.pausedAt > s.cfg.Hold) {
			continue
		}
		s.decide(Drop, t, e)
		s.stats.Drops++
		s.detach(t)
		full = e.used()+e.running*slack > e.capacity
		if !full && s.waiting == 0 {
			return
		}
	}
}

// rebalance moves one trajectory in the middle of its turn, once nothing waits any
// more: from an engine whose passes are slow to the one whose passes are fastest, the
// one that will run longest, where that pays for making its cache again.
func (s *mover) rebalance(e *engine) {
	if s.waiting > 0 || len(e.rows) < 2 {
		return
	}
	var to *engine
	for _, o := range s.engines {
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
		if best == nil || t.plan.left > best.plan.left {
			best = t
		}
	}
	if best == nil || !s.pays(best, gap, to) || !s.mayMake(best.tokens()) {
		return
	}
	s.relocate(best, to, Stop)
}

// pays compares what a move saves the trajectory with what it costs the others on its
// new engine, in tokens of cache read. It needs twice the cost: the forecast may be wrong.
func (s *mover) pays(t *task, gap int64, to *engine) bool {
	if t.worst() > to.longest {
		return false
	}
	context := t.tokens()
	saved := t.plan.left * float64(gap-context)
	return saved > 2*float64(context*s.cfg.Cost.Prefill) && context+int64(t.plan.left) < to.room()
}
