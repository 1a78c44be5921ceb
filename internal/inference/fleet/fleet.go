// Package fleet owns one policy engine made of many. It carries out what package dispatch
// decides: which member samples which trajectory, and when. It asks the members for their
// status, loads policies into all of them, and moves a trajectory to another member when its member
// dies, drains or lies. It does not find members and knows nothing of how they are reached.
//
// Invariant: a generation depends on the policy and the request alone. Each request ends
// once, whatever happens to the members, and what ended reserves nothing.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/scheduler"
)

// Config of a Fleet.
type Config struct {
	// MaxContext bounds the tokens of a context together with its generation. It belongs to
	// the policy, not to the members: what a rollout may sample must not depend on them.
	MaxContext int
	// Longest is the most tokens after the prompt that the forecast tells apart; 0 means
	// MaxContext.
	Longest int
	// Dispatch is how trajectories are placed; nil means scheduler.DefaultConfig.
	Dispatch *scheduler.Config
	// Every is the time between two questions to a member, a second when 0.
	Every time.Duration
	// Patience bounds the answer to such a question, and how long a member may take to give
	// a generation back; 5 s when 0.
	Patience time.Duration
	// LoadPatience bounds the time in which a member loads a policy, 5 minutes when 0.
	LoadPatience time.Duration
	// Now is the clock.
	Now func() time.Time
	// Log receives what happens to members; nil discards it.
	Log *slog.Logger
}

// Engine is the engine of a member.
type Engine interface {
	inference.Loader
	inference.Reporter
}

// Member is one engine of a fleet, under a unique name.
type Member struct {
	Name   string
	Engine Engine
}

// Errors of a Fleet.
var (
	// ErrClosed ends the requests of a fleet that is closed.
	ErrClosed = errors.New("fleet is closed")
	// ErrDuplicate means that another member has this name.
	ErrDuplicate = errors.New("a member has this name")
	// ErrUnknown means that no member has this name.
	ErrUnknown = errors.New("no member has this name")
)

// Fleet is an engine of many. Members may come and go at any time.
type Fleet struct {
	cfg Config
	// ctx ends with Close. It is kept because goroutines of members and requests of any time end with it.
	ctx        context.Context
	cancel     context.CancelFunc
	background *sync.WaitGroup // goroutines of members, and calls that must not hold the lock
	loading    sync.Mutex      // one Load at a time

	mu    sync.Mutex
	state *state // guarded by mu
}

// state is the scheduler and what is known of members and trajectories. The fleet's lock guards it.
type state struct {
	cfg          Config
	epoch        time.Time
	ctx          context.Context // of the fleet
	background   *sync.WaitGroup
	sched        *scheduler.Scheduler
	members      []*member // in the order in which they joined
	trajectories map[string]*trajectory
	anonymous    int64 // numbers requests without a session
	target       target
	swapping     bool  // a Load is under way
	version      int64 // that new requests are served with; -1 before the first Load
}

// target is the policy that all members are to serve.
type target struct {
	ref     blob.Ref
	version int64
}

var (
	_ inference.Loader   = (*Fleet)(nil)
	_ inference.Reporter = (*Fleet)(nil)
	_ inference.Recaller = (*Fleet)(nil)
)

// New makes a fleet without members. Requests wait until one has joined. The caller must
// Close it.
func New(cfg Config) (*Fleet, error) {
	if cfg.MaxContext < 2 || cfg.Longest < 0 || cfg.Every < 0 || cfg.Patience < 0 || cfg.LoadPatience < 0 || cfg.Now == nil {
		return nil, fmt.Errorf("fleet: max context %d, longest %d, every %s, patience %s and %s: want at least 2, nothing negative, and a clock",
			cfg.MaxContext, cfg.Longest, cfg.Every, cfg.Patience, cfg.LoadPatience)
	}
	plan := scheduler.DefaultConfig()
	if cfg.Dispatch != nil {
		plan = *cfg.Dispatch
	}
	plan.Longest = cfg.MaxContext
	if cfg.Longest > 0 {
		plan.Longest = min(cfg.Longest, cfg.MaxContext)
	}
	sched, err := scheduler.New(plan)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	setDefault(&cfg.Every, time.Second)
	setDefault(&cfg.Patience, 5*time.Second)
	setDefault(&cfg.LoadPatience, 5*time.Minute)
	cfg.Longest = plan.Longest
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{cfg: cfg, background: &sync.WaitGroup{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.state = &state{
		cfg: cfg, epoch: cfg.Now(), ctx: f.ctx, background: f.background, sched: sched, trajectories: map[string]*trajectory{},
		target: target{version: -1}, version: -1,
	}
	return f, nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Close ends all requests with ErrClosed and waits for what the fleet has started. It does
// not close the members.
func (f *Fleet) Close() {
	f.mu.Lock() // a goroutine starts under the lock, and only while ctx lives
	f.cancel()
	f.mu.Unlock()
	f.background.Wait()
}

// Version implements inference.Engine. It is -1 before the first Load.
func (f *Fleet) Version() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.version
}

// MaxContext implements inference.Engine.
func (f *Fleet) MaxContext() int { return f.cfg.MaxContext }

// Status implements inference.Reporter: the sum of the members that serve, as they said last.
func (f *Fleet) Status(context.Context) (inference.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.state.sched.Stats()
	out := inference.Status{Version: f.state.version, MaxContext: f.cfg.MaxContext, Running: st.Running, Waiting: st.Waiting, Exact: true}
	for _, m := range f.state.members {
		if !m.serves {
			continue
		}
		out.Capacity += m.status.Capacity
		out.Used += m.status.Used
		out.Passes += m.status.Passes
		out.Tokens += m.status.Tokens
		out.Exact = out.Exact && m.status.Exact
	}
	return out, nil
}

// Stats are the counts of the scheduler.
func (f *Fleet) Stats() scheduler.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.sched.Stats()
}

// Serving are the names of the members that are given trajectories.
func (f *Fleet) Serving() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.state.members {
		if m.serves {
			out = append(out, m.name)
		}
	}
	return out
}

// handle gives the scheduler an event and carries out what it decides. The lock is held.
func (s *state) handle(e scheduler.Event) error {
	decisions, err := s.sched.Handle(s.cfg.Now().Sub(s.epoch), e)
	if err != nil {
		return err
	}
	var drained []string
	for _, d := range decisions {
		switch d.Kind {
		case scheduler.Start:
			s.grant(d)
		case scheduler.Stop:
			if t := s.trajectories[d.ID]; t != nil {
				t.cutOn(d.Engine)
			}
		case scheduler.Drop:
			s.releaseOn(d)
		case scheduler.Refuse:
			if t := s.trajectories[d.ID]; t != nil {
				t.refuse()
			}
		case scheduler.Drained:
			drained = append(drained, d.Engine)
		}
	}
	for _, name := range drained {
		if m := s.find(name); m != nil {
			s.leaveOut(m, "it has drained")
		}
	}
	return nil
}

func (s *state) find(name string) *member {
	i := slices.IndexFunc(s.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return s.members[i]
}
