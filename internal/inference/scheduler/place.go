package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// engines are the engines that are there, and the policy that chooses among them.
type engines struct {
	cfg     Config
	curves  *curves
	out     *decisions
	list    []*engine // in the order in which they joined
	byName  map[string]*engine
	largest int64 // most tokens of a trajectory on any engine that ever joined
}

func newEngines(cfg Config, c *curves, out *decisions) *engines {
	return &engines{cfg: cfg, curves: c, out: out, byName: map[string]*engine{}}
}

// add makes an engine of a Join.
func (es *engines) add(j Join) {
	e := &engine{
		adaptive: es.cfg.adaptive(), margin: es.cfg.margin(), policy: es.cfg.Policy, curves: es.curves, out: es.out,
		name: j.Engine, capacity: j.Capacity, longest: j.Capacity,
	}
	if j.Longest > 0 {
		e.longest = min(j.Longest, j.Capacity)
	}
	es.list = append(es.list, e)
	es.byName[j.Engine] = e
	es.largest = max(es.largest, e.longest)
}

func (es *engines) remove(e *engine) {
	e.gone = true
	delete(es.byName, e.name)
	es.list = slices.DeleteFunc(es.list, func(o *engine) bool { return o == e })
}

// check refuses a trajectory that no engine could sample.
func (es *engines) check(t *Trajectory) error {
	switch {
	case t.ID == "":
		return fmt.Errorf("it has no name: %w", ErrInvalid)
	case t.Prompt < 1 || t.Limit < 1 || t.Prompt > maxTokens || t.Stage < 0 || t.Step < 0:
		return fmt.Errorf("prompt %d, limit %d, stage %d, step %d, want at least 1, 1, 0 and 0: %w", t.Prompt, t.Limit, t.Stage, t.Step, ErrInvalid)
	case t.Limit > es.cfg.Longest:
		return fmt.Errorf("limit %d is above the fleet's longest, %d: %w", t.Limit, es.cfg.Longest, ErrTooLarge)
	case es.cfg.Policy == Oracle && (t.Length < 1 || t.Length > t.Limit):
		return fmt.Errorf("length %d, want 1 to %d: %w", t.Length, t.Limit, ErrInvalid)
	}
	most := int64(0)
	for _, e := range es.list {
		most = max(most, e.longest)
	}
	if need := int64(t.Prompt) + int64(t.Limit); len(es.list) > 0 && need > most {
		return fmt.Errorf("prompt and limit are %d tokens, the largest engine holds %d; lower the limit: %w", need, most, ErrTooLarge)
	}
	return nil
}

// choose finds the engine for a trajectory, or nil where none has room. waiting is how many wait.
func (es *engines) choose(t *task, waiting int) *engine {
	switch es.cfg.Policy {
	case StaticSplit:
		return es.chooseHome(t)
	case LeastRequests:
		return es.chooseLeast(func(e *engine) (int64, bool) { return e.assigned, e.longest >= t.worst() })
	case WorstCase:
		return es.chooseLeast(func(e *engine) (int64, bool) {
			left := int64(float64(e.capacity)/es.cfg.Coefficient) - e.budget
			return -left, left >= t.worst() && e.longest >= t.worst()
		})
	case Expected, Oracle:
		return es.chooseExpected(t, waiting)
	}
	return nil
}

func (es *engines) chooseHome(t *task) *engine {
	for i := range es.list {
		if e := es.list[(t.home+i)%len(es.list)]; e.open() && e.longest >= t.worst() {
			return e
		}
	}
	return nil
}

// chooseLeast takes the engine with the smallest rank among those that qualify.
func (es *engines) chooseLeast(rank func(*engine) (int64, bool)) *engine {
	var best *engine
	var least int64
	for _, e := range es.list {
		if r, ok := rank(e); ok && e.open() && (best == nil || r < least) {
			best, least = e, r
		}
	}
	return best
}

// tries bounds how many engines a decision looks into.
const tries = 4

// chooseExpected takes the engine whose forecast leaves most room, if it leaves enough.
func (es *engines) chooseExpected(t *task, waiting int) *engine {
	var tried [tries]*engine
	most := es.mostRows(t, waiting)
	for i := range tries {
		var best *engine
		for _, e := range es.list {
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
		t.predict(es.curves, t.context, best.passes)
		if es.admits(best, t) {
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
func (es *engines) mostRows(t *task, waiting int) int {
	if es.cfg.Cost.Knee == 0 {
		return math.MaxInt
	}
	t.predict(es.curves, t.context, 0)
	var rows, capacity int64
	for _, e := range es.list {
		if e.open() {
			rows += int64(len(e.rows))
			capacity += e.capacity
		}
	}
	if (rows+int64(waiting))*int64(t.demand.peak()) <= capacity {
		return math.MaxInt
	}
	return es.cfg.Cost.Knee
}

func contains(list []*engine, e *engine) bool {
	for _, o := range list {
		if o == e {
			return true
		}
	}
	return false
}

// admits says whether the forecast stays below the capacity. An engine that holds
// nothing takes what it can hold, whatever the margin: else no engine ever would.
func (es *engines) admits(e *engine, t *task) bool {
	if len(e.rows) == 0 {
		return t.worst() <= e.longest
	}
	return t.worst() <= e.longest && e.used()+t.context+e.running*slack <= e.capacity && e.forecast.fits(&t.demand, e.capacity, es.cfg.margin())
}

// roomiest returns the engine with the most room, except for not.
func (es *engines) roomiest(not *engine) *engine {
	var best *engine
	for _, e := range es.list {
		if e != not && e.open() && (best == nil || e.room() > best.room()) {
			best = e
		}
	}
	return best
}
