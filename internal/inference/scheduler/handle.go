package scheduler

import (
	"fmt"
	"math"
)

func (s *Scheduler) join(j Join) error {
	switch {
	case j.Engine == "":
		return fmt.Errorf("join: an engine without a name: %w", ErrInvalid)
	case s.engines.byName[j.Engine] != nil:
		return fmt.Errorf("join: engine %q is here already; give the second one another name: %w", j.Engine, ErrDuplicate)
	case j.Capacity < 1 || j.Capacity > math.MaxInt32*64:
		return fmt.Errorf("join: engine %q has a capacity of %d tokens, want 1 to %d: %w", j.Engine, j.Capacity, math.MaxInt32*64, ErrInvalid)
	case j.Longest < 0:
		return fmt.Errorf("join: engine %q takes trajectories of %d tokens, want at least 1: %w", j.Engine, j.Longest, ErrInvalid)
	}
	s.engines.add(j)
	s.refuseTooLarge()
	return nil
}

// refuseTooLarge turns away what waited for a first engine and fits none.
func (s *Scheduler) refuseTooLarge() {
	var refused []*task
	for _, r := range s.queue.runs {
		for _, g := range r.heap {
			for _, t := range g.waiting {
				if t.worst() > s.engines.largest {
					refused = append(refused, t)
				}
			}
		}
	}
	for _, t := range refused {
		s.out.list = append(s.out.list, Decision{Kind: Refuse, ID: t.ID, Attempt: t.attempt})
		s.stats.Refused++
		s.queue.remove(t)
	}
}

func (s *Scheduler) drain(d Drain) error {
	e := s.engines.byName[d.Engine]
	if e == nil {
		return fmt.Errorf("drain: engine %q: %w", d.Engine, ErrUnknown)
	}
	e.draining = true
	e.noteDrained()
	return nil
}

// leave requeues what an engine held: its cache is gone, its tokens are not.
func (s *Scheduler) leave(l Leave) error {
	e := s.engines.byName[l.Engine]
	if e == nil {
		return fmt.Errorf("leave: engine %q: %w", l.Engine, ErrUnknown)
	}
	s.engines.remove(e)
	for len(e.rows) > 0 {
		t := e.rows[0]
		wasRunning := t.state == running
		e.detach(t)
		if wasRunning {
			t.attempt++ // what the dead engine still says about it is stale
			s.queue.requeue(t)
		}
	}
	return nil
}

// advance takes in how far an engine has come.
func (s *Scheduler) advance(a Advance) error {
	e := s.engines.byName[a.Engine]
	switch {
	case e == nil:
		return fmt.Errorf("advance: engine %q: %w", a.Engine, ErrUnknown)
	case a.Passes < e.passes || a.Passes-e.passes > maxTokens:
		return fmt.Errorf("advance: engine %q reports %d passes after %d: %w", a.Engine, a.Passes, e.passes, ErrInvalid)
	case !(a.Used >= 0 && a.Used <= 1):
		return fmt.Errorf("advance: engine %q reports %g of its capacity in use: %w", a.Engine, a.Used, ErrInvalid)
	}
	made := a.Passes - e.passes
	s.moves.sampled += made * e.running
	spans := a.Passes/int64(s.curves.width) - e.passes/int64(s.curves.width)
	e.passes = a.Passes
	e.full = false
	if !s.cfg.adaptive() {
		return nil
	}
	e.renew(made, spans)
	s.dropHeld(e)
	s.rebalance(e)
	return nil
}

// submit takes trajectories in, all or none.
func (s *Scheduler) submit(sub Submit) error {
	if len(sub.Trajectories) == 0 {
		return fmt.Errorf("submit: no trajectories: %w", ErrInvalid)
	}
	names := make(map[string]bool, len(sub.Trajectories))
	for i := range sub.Trajectories {
		t := &sub.Trajectories[i]
		if err := s.engines.check(t); err != nil {
			return fmt.Errorf("submit: trajectory %q: %w", t.ID, err)
		}
		if names[t.ID] || s.queue.tasks[t.ID] != nil {
			return fmt.Errorf("submit: trajectory %q: %w", t.ID, ErrDuplicate)
		}
		names[t.ID] = true
	}
	for i, tr := range sub.Trajectories {
		s.queue.seq++
		t := &task{Trajectory: tr, seq: s.queue.seq, context: int64(tr.Prompt), known: s.cfg.Policy == Oracle}
		t.home = i * max(1, len(s.engines.list)) / len(sub.Trajectories)
		s.queue.tasks[t.ID] = t
		s.queue.enqueue(t, s.queue.groupOf(t))
	}
	s.stats.Submitted += int64(len(sub.Trajectories))
	return nil
}

func (s *Scheduler) pause(p Pause) error {
	t, err := s.queue.find("pause", p.ID, p.Attempt, p.Context)
	if err != nil {
		return err
	}
	if t.state != running {
		return fmt.Errorf("pause: trajectory %q does not run: %w", p.ID, ErrInvalid)
	}
	t.setState(paused)
	t.setContext(int64(p.Context))
	t.pausedAt = s.now
	before := phaseOf(t.calls)
	t.calls++
	if phase := phaseOf(t.calls); phase > before {
		t.noteSurvival(s.curves)
		t.marks[phase] = t.context - int64(t.Prompt)
	}
	return nil
}

func (s *Scheduler) resume(r Resume) error {
	t, err := s.queue.find("resume", r.ID, r.Attempt, r.Context)
	if err != nil {
		return err
	}
	if t.state != paused {
		return fmt.Errorf("resume: trajectory %q does not wait for a tool: %w", r.ID, ErrInvalid)
	}
	t.setContext(int64(r.Context))
	if t.eng == nil {
		s.queue.requeue(t)
		return nil
	}
	if s.cfg.adaptive() && s.moveAtBoundary(t) {
		return nil
	}
	if t.eng.draining {
		s.out.add(Drop, t, t.eng)
		t.eng.detach(t)
		s.queue.requeue(t)
		return nil
	}
	t.eng.begin(t)
	return nil
}

func (s *Scheduler) finish(f Finish) error {
	t, err := s.queue.find("finish", f.ID, f.Attempt, f.Context)
	if err != nil {
		return err
	}
	if t.state == waiting {
		return fmt.Errorf("finish: trajectory %q waits for an engine: %w", f.ID, ErrInvalid)
	}
	s.stats.Finished++
	t.setState(paused)
	t.setContext(int64(f.Context))
	if s.cfg.adaptive() {
		t.noteEnd(s.curves)
	}
	s.queue.remove(t)
	return nil
}

// reject queues a trajectory again that its engine did not continue.
func (s *Scheduler) reject(r Reject) error {
	t, err := s.queue.find("reject", r.ID, r.Attempt, r.Context)
	if err != nil {
		return err
	}
	if t.state != running {
		return fmt.Errorf("reject: trajectory %q does not run: %w", r.ID, ErrInvalid)
	}
	e := t.eng
	t.setState(paused)
	t.setContext(int64(r.Context))
	e.detach(t)
	e.full = true
	s.queue.requeue(t)
	return nil
}

func (s *Scheduler) cancel(c Cancel) error {
	t := s.queue.tasks[c.ID]
	if t == nil {
		return fmt.Errorf("cancel: trajectory %q: %w", c.ID, ErrUnknown)
	}
	if t.eng != nil {
		kind := Drop
		if t.state == running {
			kind = Stop
		}
		s.out.add(kind, t, t.eng)
	}
	s.stats.Cancelled++
	s.queue.remove(t)
	return nil
}

// recall learns from trajectories that ended before the scheduler began.
func (s *Scheduler) recall(r Recall) error {
	if r.Limit < 1 || r.Limit > maxTokens || r.Stage < 0 {
		return fmt.Errorf("recall: limit %d, stage %d, want at least 1 and 0: %w", r.Limit, r.Stage, ErrInvalid)
	}
	var ends []end
	for _, turns := range r.Turns {
		var e end
		for i, length := range turns {
			if length < int(e.length) {
				return fmt.Errorf("recall: turn %d ends at token %d, before the turn before it: %w", i, length, ErrInvalid)
			}
			e.length = min(int64(length), int64(r.Limit))
			if phase := phaseOf(i + 1); phase > e.phase {
				e.phase, e.marks[phase] = phase, e.length
			}
		}
		if len(turns) > 0 {
			ends = append(ends, e)
		}
	}
	if !s.cfg.adaptive() || len(ends) == 0 {
		return nil
	}
	st := s.curves.stage(stageKey{r.Run, r.Stage}, min(r.Limit, s.cfg.Longest))
	s.curves.learn(st, problemKey{r.Run, r.Problem}, ends)
	s.curves.fit(st)
	return nil
}
