package scheduler

import "math"

// placeWaiting starts what waits, as long as something fits. The run that holds least
// goes first; a run whose first trajectory fits nowhere waits for the next event, and
// does not keep the others waiting.
func (s *placer) placeWaiting() {
	if s.waiting == 0 || len(s.engines) == 0 {
		return
	}
	for _, r := range s.runs {
		r.blocked = false
	}
	for {
		r := s.poorest()
		if r == nil {
			return
		}
		t := r.first()
		e := s.choose(t)
		if e == nil {
			r.blocked = true
			continue
		}
		s.start(t, e)
	}
}

// poorest is the run that holds least and has something waiting.
func (s *queue) poorest() *run {
	var best *run
	for _, r := range s.runs {
		if r.waits() && !r.blocked && (best == nil || r.held < best.held) {
			best = r
		}
	}
	return best
}

// choose finds the engine for a trajectory, or nil where none has room.
func (s *placer) choose(t *task) *engine {
	switch s.cfg.Policy {
	case StaticSplit:
		return s.chooseHome(t)
	case LeastRequests:
		return s.chooseLeast(func(e *engine) (int64, bool) { return e.assigned, e.longest >= t.worst() })
	case WorstCase:
		return s.chooseLeast(func(e *engine) (int64, bool) {
			left := int64(float64(e.capacity)/s.cfg.Coefficient) - e.budget
			return -left, left >= t.worst() && e.longest >= t.worst()
		})
	case Expected, Oracle:
		return s.chooseExpected(t)
	}
	return nil
}

func (s *placer) chooseHome(t *task) *engine {
	for i := range s.engines {
		if e := s.engines[(t.home+i)%len(s.engines)]; e.open() && e.longest >= t.worst() {
			return e
		}
	}
	return nil
}

// chooseLeast takes the engine with the smallest rank among those that qualify.
func (s *placer) chooseLeast(rank func(*engine) (int64, bool)) *engine {
	var best *engine
	var least int64
	for _, e := range s.engines {
		if r, ok := rank(e); ok && e.open() && (best == nil || r < least) {
			best, least = e, r
		}
	}
	return best
}

// tries bounds how many engines a decision looks into.
const tries = 4

// chooseExpected takes the engine whose forecast leaves most room, if it leaves enough.
func (s *placer) chooseExpected(t *task) *engine {
	var tried [tries]*engine
	most := s.mostRows(t)
	for i := range tries {
		var best *engine
		for _, e := range s.engines {
			if !e.open() || len(e.rows) >= most || e.room() <= t.context || contains(tried[:i], e) {
				continue
			}
			if best == nil || e.room() > best.room() {
				best = e
			}
		}
		if best == nil {
			return nil
		}
		s.curves.predict(&t.plan, t.group.stage, &t.group.belief, t, t.context, best.passes)
		if s.admits(best, t) {
			return best
		}
		tried[i] = best
	}
	return nil
}

// mostRows is how many rows an engine is given. More rows than the knee make all of
// them slower and none of them sooner, and a place that is filled now is not there for
// what turns out to be long: a problem shows that after some hundred tokens. When
// all that waits fits at once, there is nothing to wait for.
func (s *placer) mostRows(t *task) int {
	if s.cfg.Cost.Knee == 0 {
		return math.MaxInt
	}
	s.curves.predict(&t.plan, t.group.stage, &t.group.belief, t, t.context, 0)
	var rows, capacity int64
	for _, e := range s.engines {
		if e.open() {
			rows += int64(len(e.rows))
			capacity += e.capacity
		}
	}
	if (rows+int64(s.waiting))*int64(t.plan.peak()) <= capacity {
		return math.MaxInt
	}
	return s.cfg.Cost.Knee
}

func contains(list []*engine, e *engine) bool {
	for _, o := range list {
		if o == e {
			return true
		}
	}
	return false
}

func (e *engine) room() int64 { return e.capacity - e.top }

// admits says whether the forecast stays below the capacity. An engine that holds
// nothing takes what it can hold, whatever the margin: else nobody ever would.
func (s *placer) admits(e *engine, t *task) bool {
	if len(e.rows) == 0 {
		return t.worst() <= e.longest
	}
	return t.worst() <= e.longest && e.used()+t.context+e.running*slack <= e.capacity && e.forecast.fits(&t.plan, e.capacity, s.margin())
}

// start gives a waiting trajectory to an engine.
func (s *placer) start(t *task, e *engine) {
	s.dequeue(t)
	t.state = paused
	if t.started {
		s.again += t.context
	} else {
		t.started = true
		t.group.started++
	}
	s.attach(t, e)
	s.begin(t)
}

// begin starts the next turn of a trajectory on the engine that has its cache.
func (s *placer) begin(t *task) {
	t.attempt++
	s.setState(t, running)
	s.decide(Start, t, t.eng)
}
