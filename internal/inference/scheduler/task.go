package scheduler

import "time"

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
	home    int // index of its engine under StaticSplit
	// context is the number of tokens; while it runs, less the passes that its engine made before.
	context  int64
	calls    int
	marks    [numPhases]int64
	span     int // of length, up to which its survival has been told
	pausedAt time.Duration
	movedAt  int64 // tokens when it was moved last
	// eng holds its cache, in row slot, and has reserved this many tokens for it.
	eng      *engine
	slot     int
	reserved int64
	demand   demand
}

// tokens returns the length of the context now. A report that runs ahead of a trajectory does
// not make it longer than it may become.
func (t *task) tokens() int64 {
	n := t.context
	if t.state == running {
		n += t.eng.passes
	}
	return min(n, t.worst())
}

func (t *task) worst() int64 { return int64(t.Prompt) + int64(t.Limit) }

// setState keeps the sum of contexts of its engine right: what runs grows with the passes.
func (t *task) setState(to state) {
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

// predict makes the demand of the trajectory anew, for an engine that has made so many passes.
func (t *task) predict(c *curves, context, passes int64) {
	c.predict(&t.demand, t.group.stage, &t.group.belief, t, context, passes)
}

// noteSurvival tells the trajectory's group how far it has come.
func (t *task) noteSurvival(c *curves) {
	if t.known {
		return
	}
	at := c.spanOf(t.tokens() - int64(t.Prompt))
	if at <= t.span {
		return
	}
	g := t.group
	g.belief.survived(g.stage, phaseOf(t.calls), t.span, at)
	t.span = at
	g.reorder()
}

// noteEnd tells the trajectory's group where it ended.
func (t *task) noteEnd(c *curves) {
	if t.known {
		return
	}
	t.noteSurvival(c)
	g, length, phase := t.group, t.context-int64(t.Prompt), phaseOf(t.calls)
	if length < int64(t.Limit) { // the limit ends a trajectory of any class
		g.belief.ended(g.stage, phase, c.spanOf(length))
	}
	g.ends = append(g.ends, end{length: length, marks: t.marks, phase: phase})
	g.reorder()
}
