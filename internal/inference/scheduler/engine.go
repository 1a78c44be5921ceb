package scheduler

// engine is the scheduler's state of one engine.
type engine struct {
	adaptive bool // the policy forecasts
	margin   float64
	policy   Policy
	curves   *curves
	out      *decisions
	name     string
	capacity int64
	longest  int64 // most tokens of a trajectory
	draining bool
	gone     bool // it has left
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
	cursor   int   // row whose demand is made anew next
	debt     int64 // passes of rows since demands were made anew
}

// open reports whether the engine may be given more.
func (e *engine) open() bool { return !e.draining && !e.full }

// used returns the tokens that the rows hold now.
func (e *engine) used() int64 { return e.base + e.running*e.passes }

// reserved returns the tokens that are reserved for the rows; 0 when all have left.
func (e *engine) reserved() int64 {
	sum := e.budget + e.base + e.running
	for i := range e.forecast.mean {
		sum += e.forecast.mean[i] + e.forecast.vary[i]
	}
	return sum
}

// room is the distance of the forecast from the capacity.
func (e *engine) room() int64 { return e.capacity - e.top }

// noteDrained adds the decision that the engine may go, once it holds nothing.
func (e *engine) noteDrained() {
	if e.draining && len(e.rows) == 0 && !e.gone {
		e.out.list = append(e.out.list, Decision{Kind: Drained, Engine: e.name})
	}
}

// renew makes demands anew that time has made wrong: each row's once in a span of
// passes, a few at a time, so that no report takes long. After a leap it makes all.
func (e *engine) renew(made, spans int64) {
	n, width := int64(len(e.rows)), int64(e.curves.width)
	if n == 0 {
		e.debt, e.top = 0, 0
		return
	}
	e.debt += made * n
	count := min(n, e.debt/width)
	e.debt -= count * width
	if spans > 4 {
		count, e.debt = n, 0
	}
	for range count {
		if e.cursor >= len(e.rows) {
			e.cursor = 0
		}
		e.renewDemand(e.rows[e.cursor])
		e.cursor++
	}
	if count > 0 || spans > 0 {
		e.updatePeak()
	}
}

// updatePeak computes the forecast's peak from now on.
func (e *engine) updatePeak() {
	if e.adaptive {
		e.top = max(e.used(), e.forecast.peak(e.passes/int64(e.curves.width), e.margin))
	}
}

// attach gives the engine a row.
func (e *engine) attach(t *task) {
	t.eng, t.slot = e, len(e.rows)
	e.rows = append(e.rows, t)
	e.base += t.context
	e.assigned++
	switch {
	case e.adaptive:
		t.reserved = int64(t.demand.peak())
		e.forecast.add(&t.demand)
		e.updatePeak()
	case e.policy == WorstCase:
		t.reserved = t.worst()
		e.budget += t.reserved
	default:
		t.reserved = t.context
	}
	t.group.run.held += t.reserved
}

// detach takes a row from the engine, with all that it reserved.
func (e *engine) detach(t *task) {
	t.setState(paused)
	last := len(e.rows) - 1
	e.rows[t.slot] = e.rows[last]
	e.rows[t.slot].slot = t.slot
	e.rows[last] = nil
	e.rows = e.rows[:last]
	e.base -= t.context
	switch {
	case e.adaptive:
		e.forecast.remove(&t.demand)
		e.updatePeak()
	case e.policy == WorstCase:
		e.budget -= t.reserved
	}
	t.group.run.held -= t.reserved
	t.eng, t.reserved = nil, 0
	e.full = false
	e.noteDrained()
}

// renewDemand makes the demand of a row anew, from what is known now.
func (e *engine) renewDemand(t *task) {
	t.noteSurvival(e.curves)
	e.forecast.remove(&t.demand)
	t.group.run.held -= t.reserved
	t.predict(e.curves, t.tokens(), e.passes)
	e.forecast.add(&t.demand)
	t.reserved = int64(t.demand.peak())
	t.group.run.held += t.reserved
}

// begin starts the next turn of a row.
func (e *engine) begin(t *task) {
	t.attempt++
	t.setState(running)
	e.out.add(Start, t, e)
}
