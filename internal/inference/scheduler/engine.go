package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// engine is the book of one engine.
type engine struct {
	name     string
	capacity int64
	longest  int64 // most tokens of a trajectory
	draining bool
	full     bool // it rejected a trajectory, and nothing has changed since
	passes   int64
	// rows are the trajectories whose cache it holds; running ones grow by a token a pass.
	rows    []*task
	running int64
	// base is the sum of contexts, with passes taken off those that run.
	base     int64
	forecast forecast
	top      int64 // the forecast's peak
	budget   int64 // reserved under WorstCase
	assigned int64 // trajectories ever given, under LeastRequests
	cursor   int   // row whose share is made anew next
	debt     int64 // passes since shares were made anew
}

// open says whether it may be given more.
func (e *engine) open() bool { return !e.draining && !e.full }

// used is what the rows hold now.
func (e *engine) used() int64 { return e.base + e.running*e.passes }

// reserved is what the rows have set aside; 0 when all have left.
func (e *engine) reserved() int64 {
	sum := e.budget + e.base + e.running
	for i := range e.forecast.mean {
		sum += e.forecast.mean[i] + e.forecast.vary[i]
	}
	return sum
}

func (s *Scheduler) join(j Join) error {
	switch {
	case j.Engine == "":
		return fmt.Errorf("join: an engine without a name: %w", ErrInvalid)
	case s.byName[j.Engine] != nil:
		return fmt.Errorf("join: engine %q is here already; give the second one another name: %w", j.Engine, ErrDuplicate)
	case j.Capacity < 1 || j.Capacity > math.MaxInt32*64:
		return fmt.Errorf("join: engine %q has a capacity of %d tokens, want 1 to %d: %w", j.Engine, j.Capacity, math.MaxInt32*64, ErrInvalid)
	case j.Longest < 0:
		return fmt.Errorf("join: engine %q takes trajectories of %d tokens, want at least 1: %w", j.Engine, j.Longest, ErrInvalid)
	}
	e := &engine{name: j.Engine, capacity: j.Capacity, longest: j.Capacity}
	if j.Longest > 0 {
		e.longest = min(j.Longest, j.Capacity)
	}
	s.engines = append(s.engines, e)
	s.byName[j.Engine] = e
	s.largest = max(s.largest, e.longest)
	s.refuseTooLarge()
	return nil
}

// refuseTooLarge turns away what waited for a first engine and fits none.
func (s *Scheduler) refuseTooLarge() {
	var refused []*task
	for _, r := range s.runs {
		for _, g := range r.heap {
			for _, t := range g.waiting {
				if t.worst() > s.largest {
					refused = append(refused, t)
				}
			}
		}
	}
	for _, t := range refused {
		s.out = append(s.out, Decision{Kind: Refuse, ID: t.ID, Attempt: t.attempt})
		s.stats.Refused++
		s.forget(t)
	}
}

func (s *Scheduler) drain(d Drain) error {
	e := s.byName[d.Engine]
	if e == nil {
		return fmt.Errorf("drain: engine %q: %w", d.Engine, ErrUnknown)
	}
	e.draining = true
	s.noteDrained(e)
	return nil
}

// noteDrained says that an engine may go, once it holds nothing.
func (s *books) noteDrained(e *engine) {
	if e.draining && len(e.rows) == 0 && s.byName[e.name] == e {
		s.out = append(s.out, Decision{Kind: Drained, Engine: e.name})
	}
}

// leave requeues what an engine held: its cache is gone, its tokens are not.
func (s *Scheduler) leave(l Leave) error {
	e := s.byName[l.Engine]
	if e == nil {
		return fmt.Errorf("leave: engine %q: %w", l.Engine, ErrUnknown)
	}
	delete(s.byName, e.name)
	s.engines = slices.DeleteFunc(s.engines, func(o *engine) bool { return o == e })
	for len(e.rows) > 0 {
		t := e.rows[0]
		wasRunning := t.state == running
		s.detach(t)
		if wasRunning {
			t.attempt++ // what the dead engine still says about it is stale
			s.putBack(t)
		}
	}
	return nil
}

// advance takes in how far an engine has come.
func (s *Scheduler) advance(a Advance) error {
	e := s.byName[a.Engine]
	switch {
	case e == nil:
		return fmt.Errorf("advance: engine %q: %w", a.Engine, ErrUnknown)
	case a.Passes < e.passes || a.Passes-e.passes > maxTokens:
		return fmt.Errorf("advance: engine %q reports %d passes after %d: %w", a.Engine, a.Passes, e.passes, ErrInvalid)
	case !(a.Used >= 0 && a.Used <= 1):
		return fmt.Errorf("advance: engine %q reports %g of its capacity in use: %w", a.Engine, a.Used, ErrInvalid)
	}
	made := a.Passes - e.passes
	s.sampled += made * e.running
	spans := a.Passes/int64(s.curves.width) - e.passes/int64(s.curves.width)
	e.passes = a.Passes
	e.full = false
	if !s.adaptive() {
		return nil
	}
	s.renew(e, made, spans)
	s.giveUpHeld(e)
	s.rebalance(e)
	return nil
}

// renew makes shares anew that time has made wrong: each row's once in a span of
// passes, a few at a time, so that no report takes long. After a leap it makes all.
func (s *queue) renew(e *engine, made, spans int64) {
	n := int64(len(e.rows))
	if n == 0 {
		e.debt, e.top = 0, 0
		return
	}
	e.debt += made * n
	count := min(n, e.debt/int64(s.curves.width))
	e.debt -= count * int64(s.curves.width)
	if spans > 4 {
		count, e.debt = n, 0
	}
	for range count {
		if e.cursor >= len(e.rows) {
			e.cursor = 0
		}
		s.reshare(e.rows[e.cursor])
		e.cursor++
	}
	if count > 0 || spans > 0 {
		s.repeak(e)
	}
}

func (s *books) repeak(e *engine) {
	if s.adaptive() {
		e.top = max(e.used(), e.forecast.peak(e.passes/int64(s.curves.width), s.margin()))
	}
}

// margin is that of the forecast; known lengths need none.
func (s *books) margin() float64 {
	if s.cfg.Policy == Oracle {
		return 0
	}
	return s.cfg.Margin
}

// attach gives a row to an engine.
func (s *books) attach(t *task, e *engine) {
	t.eng, t.slot = e, len(e.rows)
	e.rows = append(e.rows, t)
	e.base += t.context
	e.assigned++
	switch {
	case s.adaptive():
		t.heldShare = int64(t.plan.peak())
		e.forecast.add(&t.plan)
		s.repeak(e)
	case s.cfg.Policy == WorstCase:
		t.heldShare = t.worst()
		e.budget += t.heldShare
	default:
		t.heldShare = t.context
	}
	t.group.run.held += t.heldShare
}

// detach takes a row from its engine, with all that it reserved.
func (s *books) detach(t *task) {
	e := t.eng
	s.setState(t, paused)
	last := len(e.rows) - 1
	e.rows[t.slot] = e.rows[last]
	e.rows[t.slot].slot = t.slot
	e.rows[last] = nil
	e.rows = e.rows[:last]
	e.base -= t.context
	switch {
	case s.adaptive():
		e.forecast.remove(&t.plan)
		s.repeak(e)
	case s.cfg.Policy == WorstCase:
		e.budget -= t.heldShare
	}
	t.group.run.held -= t.heldShare
	t.eng, t.heldShare = nil, 0
	e.full = false
	s.noteDrained(e)
}

// peak is the largest expectation of a share.
func (s *share) peak() int32 {
	var top int32
	for j := range s.n {
		top = max(top, s.mean[j])
	}
	return top
}

// reshare makes the share of a row anew, from what is known by now.
func (s *queue) reshare(t *task) {
	e := t.eng
	s.noteSurvival(t)
	e.forecast.remove(&t.plan)
	t.group.run.held -= t.heldShare
	s.curves.predict(&t.plan, t.group.stage, &t.group.belief, t, t.tokens(), e.passes)
	e.forecast.add(&t.plan)
	t.heldShare = int64(t.plan.peak())
	t.group.run.held += t.heldShare
}
