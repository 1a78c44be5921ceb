// Package scheduler decides which engine samples which trajectory, and when. It owns
// the forecast of each engine's KV cache, the queue, the moves, and the baselines it is
// compared with. It starts nothing: times and events go in, decisions come out, and the
// caller carries them out.
//
// Invariant: equal events give equal decisions. Each trajectory that was taken is
// waiting, running or paused until it ends once, and a trajectory that ended holds no reservation.
package scheduler

import (
	"fmt"
	"time"
)

// Policy names a way to place trajectories.
type Policy string

// The policies. All but Expected and Oracle stay with the engine they chose.
const (
	// StaticSplit gives each engine the same number of neighbours of a step at once.
	StaticSplit Policy = "static"
	// LeastRequests gives a trajectory to the engine that was given fewest so far.
	LeastRequests Policy = "least-requests"
	// WorstCase reserves prompt and limit until the end, on the engine with most left.
	WorstCase Policy = "worst-case"
	// Expected reserves what a forecast from learned lengths expects, with a margin.
	Expected Policy = "expected"
	// Oracle is Expected with the lengths known.
	Oracle Policy = "oracle"
)

// Config of a scheduler.
type Config struct {
	Policy Policy
	// Coefficient divides capacities under WorstCase: 0.7 commits 1.43 of each.
	Coefficient float64
	// Margin is how many standard deviations the forecast adds under Expected.
	Margin float64
	// Longest is the largest Limit of a trajectory.
	Longest int
	// Hold is how long a tool may run before its trajectory gives up its cache to others that wait.
	Hold time.Duration
	// Cost weighs a move.
	Cost Cost
}

// Cost describes a pass of an engine in units of reading one token of KV cache.
type Cost struct {
	// Base is the cost of a pass before the first token: weights and overhead.
	Base int64
	// Prefill is the cost of recomputing one token of KV cache.
	Prefill int64
	// Knee is how many rows a pass takes for the price of one; 0 means any number.
	Knee int
	// MaxRecompute bounds tokens made again by moves, as a share of those sampled.
	MaxRecompute float64
}

// DefaultConfig is the policy that a fleet uses.
func DefaultConfig() Config {
	return Config{
		Policy: Expected, Coefficient: 1, Margin: 2, Longest: 12288, Hold: 5e9,
		Cost: Cost{Base: 250_000, Prefill: 1400, Knee: 144, MaxRecompute: 0.028},
	}
}

func (c Config) validate() error {
	switch c.Policy {
	case StaticSplit, LeastRequests, WorstCase, Expected, Oracle:
	default:
		return fmt.Errorf("policy is %q, want one of static, least-requests, worst-case, expected, oracle", c.Policy)
	}
	switch {
	case !(c.Coefficient > 0 && c.Coefficient <= 1):
		return fmt.Errorf("coefficient is %g, want above 0 and at most 1", c.Coefficient)
	case !(c.Margin >= 0 && c.Margin <= 10):
		return fmt.Errorf("margin is %g, want 0 to 10", c.Margin)
	case c.Longest < 1 || c.Longest > maxTokens:
		return fmt.Errorf("longest is %d, want 1 to %d", c.Longest, maxTokens)
	case c.Hold < 0:
		return fmt.Errorf("hold is %v, want at least 0", c.Hold)
	case c.Cost.Base < 0 || c.Cost.Prefill < 0 || c.Cost.Knee < 0 || !(c.Cost.MaxRecompute >= 0 && c.Cost.MaxRecompute <= 1):
		return fmt.Errorf("cost is %+v, want nothing negative and max_recompute at most 1", c.Cost)
	}
	return nil
}

// maxTokens bounds every count of tokens, so that squares of them fit.
const maxTokens = 1 << 24

// adaptive reports whether the policy forecasts, orders by length and moves.
func (c Config) adaptive() bool { return c.Policy == Expected || c.Policy == Oracle }

// margin returns the margin of the forecast; known lengths need none.
func (c Config) margin() float64 {
	if c.Policy == Oracle {
		return 0
	}
	return c.Margin
}

// Scheduler takes events. It is not safe for concurrent use.
type Scheduler struct {
	cfg     Config
	now     time.Duration
	curves  *curves
	out     *decisions
	queue   *queue
	engines *engines
	moves   moves
	stats   Stats
}

// decisions are the decisions of the current event.
type decisions struct{ list []Decision }

func (d *decisions) add(k Kind, t *task, e *engine) {
	d.list = append(d.list, Decision{Kind: k, ID: t.ID, Engine: e.name, Attempt: t.attempt})
}

// slack is how many passes an engine makes before it is looked at again.
const slack = 64

// New makes a scheduler without engines.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	c, out := newCurves(cfg.Longest), &decisions{}
	return &Scheduler{
		cfg: cfg, curves: c, out: out, queue: newQueue(cfg, c), engines: newEngines(cfg, c, out), moves: moves{cost: cfg.Cost},
	}, nil
}

// Handle takes one event and returns what to do. The slice is valid until the next
// call. An event that is refused with an error changes nothing and decides nothing.
func (s *Scheduler) Handle(now time.Duration, e Event) ([]Decision, error) {
	s.out.list = s.out.list[:0]
	s.now = max(s.now, now) // a time that steps back does not reorder the past
	var err error
	switch e := e.(type) {
	case Join:
		err = s.join(e)
	case Drain:
		err = s.drain(e)
	case Leave:
		err = s.leave(e)
	case Advance:
		err = s.advance(e)
	case Submit:
		err = s.submit(e)
	case Pause:
		err = s.pause(e)
	case Resume:
		err = s.resume(e)
	case Finish:
		err = s.finish(e)
	case Reject:
		err = s.reject(e)
	case Cancel:
		err = s.cancel(e)
	case Recall:
		err = s.recall(e)
	default:
		err = fmt.Errorf("event %T: %w", e, ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	s.placeWaiting()
	return s.out.list, nil
}

// Stats counts what happened, and what is reserved now.
func (s *Scheduler) Stats() Stats {
	st := s.stats
	st.Waiting = s.queue.waiting
	for _, e := range s.engines.list {
		st.Reserved += e.reserved()
	}
	for _, t := range s.queue.tasks {
		switch t.state {
		case running:
			st.Running++
		case paused:
			st.Paused++
		case waiting:
		}
	}
	return st
}
