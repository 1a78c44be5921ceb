package scheduler

import "fmt"

type state int

const (
	waiting state = iota // wants an engine
	running              // an engine samples it
	paused               // a tool runs; an engine may hold its cache
)

// task is one trajectory from Submit to its end.
type task struct {
	Trajectory
	group   *group
	state   state
	attempt int
	known   bool // the length, to the oracle
	started bool // it has been on an engine
	seq     int64
	home    int // place in its step, for StaticSplit
	// context is the number of tokens; while it runs, less the passes made before.
	context  int64
	calls    int
	marks    [numPhases]int64
	span     int // of length, up to which its survival has been told
	pausedAt Clock
	movedAt  int64 // tokens when it was moved last
	// What its engine holds for it.
	eng       *engine
	slot      int
	plan      share
	heldShare int64
}

// tokens is the length of the context now. A report that runs ahead of a trajectory does
// not make it longer than it may become.
func (t *task) tokens() int64 {
	n := t.context
	if t.state == running {
		n += t.eng.passes
	}
	return min(n, t.worst())
}

func (t *task) worst() int64 { return int64(t.Prompt) + int64(t.Limit) }

// setState keeps the sum of contexts right: what runs grows with the passes.
func (s *books) setState(t *task, to state) {
	if t.state == to {
		return
	}
	if e := t.eng; e != nil {
		e.base -= t.context
		if t.state == running {
			t.context = t.tokens()
			e.running--
		}
		if to == running {
			t.context -= e.passes
			e.running++
		}
		e.base += t.context
	}
	t.state = to
}

// setContext replaces our count by what is known for certain.
func (t *task) setContext(n int64) {
	if t.eng != nil {
		t.eng.base += n - t.context
	}
	t.context = n
}

// submit takes trajectories in, all or none.
func (s *Scheduler) submit(sub Submit) error {
	if len(sub.Trajectories) == 0 {
		return fmt.Errorf("submit: no trajectories: %w", ErrInvalid)
	}
	names := make(map[string]bool, len(sub.Trajectories))
	for i := range sub.Trajectories {
		t := &sub.Trajectories[i]
		if err := s.check(t); err != nil {
			return fmt.Errorf("submit: trajectory %q: %w", t.ID, err)
		}
		if names[t.ID] || s.tasks[t.ID] != nil {
			return fmt.Errorf("submit: trajectory %q: %w", t.ID, ErrDuplicate)
		}
		names[t.ID] = true
	}
	for i, tr := range sub.Trajectories {
		s.seq++
		t := &task{Trajectory: tr, seq: s.seq, context: int64(tr.Prompt), known: s.cfg.Policy == Oracle}
		t.home = i * max(1, len(s.engines)) / len(sub.Trajectories)
		s.tasks[t.ID] = t
		s.enqueue(t, s.groupOf(t))
	}
	s.stats.Submitted += int64(len(sub.Trajectories))
	return nil
}

func (s *Scheduler) check(t *Trajectory) error {
	switch {
	case t.ID == "":
		return fmt.Errorf("it has no name: %w", ErrInvalid)
	case t.Prompt < 1 || t.Limit < 1 || t.Prompt > maxTokens || t.Stage < 0 || t.Step < 0:
		return fmt.Errorf("prompt %d, limit %d, stage %d, step %d, want at least 1, 1, 0 and 0: %w", t.Prompt, t.Limit, t.Stage, t.Step, ErrInvalid)
	case t.Limit > s.cfg.Longest:
		return fmt.Errorf("limit %d is above the fleet's longest, %d: %w", t.Limit, s.cfg.Longest, ErrTooLarge)
	case s.cfg.Policy == Oracle && (t.Length < 1 || t.Length > t.Limit):
		return fmt.Errorf("length %d, want 1 to %d: %w", t.Length, t.Limit, ErrInvalid)
	}
	most := int64(0)
	for _, e := range s.engines {
		most = max(most, e.longest)
	}
	if need := int64(t.Prompt) + int64(t.Limit); len(s.engines) > 0 && need > most {
		return fmt.Errorf("prompt and limit are %d tokens, the largest engine holds %d; lower the limit: %w", need, most, ErrTooLarge)
	}
	return nil
}

// find looks up the trajectory of an event and refuses what an older attempt says.
func (s *Scheduler) find(what, id string, attempt, context int) (*task, error) {
	t := s.tasks[id]
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

func (s *Scheduler) pause(p Pause) error {
	t, err := s.find("pause", p.ID, p.Attempt, p.Context)
	if err != nil {
		return err
	}
	if t.state != running {
		return fmt.Errorf("pause: trajectory %q does not run: %w", p.ID, ErrInvalid)
	}
	s.setState(t, paused)
	t.setContext(int64(p.Context))
	t.pausedAt = s.now
	before := phaseOf(t.calls)
	t.calls++
	if phase := phaseOf(t.calls); phase > before {
		s.noteSurvival(t)
		t.marks[phase] = t.context - int64(t.Prompt)
	}
	return nil
}

func (s *Scheduler) resume(r Resume) error {
	t, err := s.find("resume", r.ID, r.Attempt, r.Context)
	if err != nil {
		return err
	}
	if t.state != paused {
		return fmt.Errorf("resume: trajectory %q does not wait for a tool: %w", r.ID, ErrInvalid)
	}
	t.setContext(int64(r.Context))
	if t.eng == nil {
		s.putBack(t)
		return nil
	}
	if s.adaptive() && s.leaveAtBoundary(t) {
		return nil
	}
	if t.eng.draining {
		s.decide(Drop, t, t.eng)
		s.detach(t)
		s.putBack(t)
		return nil
	}
	s.begin(t)
	return nil
}

func (s *Scheduler) finish(f Finish) error {
	t, err := s.find("finish", f.ID, f.Attempt, f.Context)
	if err != nil {
		return err
	}
	if t.state == waiting {
		return fmt.Errorf("finish: trajectory %q waits for an engine: %w", f.ID, ErrInvalid)
	}
	s.stats.Finished++
	s.setState(t, paused)
	t.setContext(int64(f.Context))
	s.noteEnd(t)
	s.forget(t)
	return nil
}

// reject queues a trajectory again that its engine did not go on with.
func (s *Scheduler) reject(r Reject) error {
	t, err := s.find("reject", r.ID, r.Attempt, r.Context)
	if err != nil {
		return err
	}
	if t.state != running {
		return fmt.Errorf("reject: trajectory %q does not run: %w", r.ID, ErrInvalid)
	}
	e := t.eng
	s.setState(t, paused)
	t.setContext(int64(r.Context))
	s.detach(t)
	e.full = true
	s.putBack(t)
	return nil
}

func (s *Scheduler) cancel(c Cancel) error {
	t := s.tasks[c.ID]
	if t == nil {
		return fmt.Errorf("cancel: trajectory %q: %w", c.ID, ErrUnknown)
	}
	if t.eng != nil {
		kind := Drop
		if t.state == running {
			kind = Stop
		}
		s.decide(kind, t, t.eng)
	}
	s.stats.Cancelled++
	s.forget(t)
	return nil
}
