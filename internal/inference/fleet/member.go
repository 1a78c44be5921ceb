package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"temper/internal/inference"
	"temper/internal/inference/scheduler"
)

// member is an engine of the fleet. A goroutine of each member asks its engine for its status and lets it
// join the scheduler when it is well. The fleet's lock guards the fields below talk.
type member struct {
	fleet  *Fleet
	name   string
	engine Engine
	wake   chan struct{} // ends the wait for the next question
	// ctx ends when it has left or drained. Its goroutine ends with it.
	ctx   context.Context
	leave context.CancelFunc
	talk  chan struct{} // holds one while it is asked or loads

	serves   bool // the scheduler knows it
	draining bool
	status   inference.Status // of its last good answer
	passes   int64            // as the scheduler was told
	failures int              // in a row
}

// Join adds a member. It serves as soon as it has answered and holds the fleet's policy.
// Errors: ErrDuplicate, ErrClosed.
func (f *Fleet) Join(m Member) error {
	if m.Name == "" || m.Engine == nil {
		return errors.New("join: a member needs a name and an engine")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ctx.Err() != nil:
		return fmt.Errorf("join: %w", ErrClosed)
	case f.state.find(m.Name) != nil:
		return fmt.Errorf("join: %q: %w; give the second one another name", m.Name, ErrDuplicate)
	}
	added := &member{fleet: f, name: m.Name, engine: m.Engine, wake: make(chan struct{}, 1), talk: make(chan struct{}, 1)}
	added.ctx, added.leave = context.WithCancel(f.ctx)
	f.state.members = append(f.state.members, added)
	f.background.Go(added.watch)
	return nil
}

// Drain gives a member nothing new, waits until it holds no trajectory, and takes it away.
// When ctx ends first, the member keeps draining.
func (f *Fleet) Drain(ctx context.Context, name string) error {
	f.mu.Lock()
	m := f.state.find(name)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("drain: %q: %w", name, ErrUnknown)
	}
	m.draining = true
	if m.serves {
		_ = f.state.handle(scheduler.Drain{Engine: name}) // the scheduler knows it
	} else {
		f.state.remove(m)
	}
	f.mu.Unlock()
	select {
	case <-m.ctx.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave takes a member away at once. Other members continue what it sampled.
func (f *Fleet) Leave(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.state.find(name)
	if m == nil {
		return fmt.Errorf("leave: %q: %w", name, ErrUnknown)
	}
	f.state.remove(m)
	f.state.leaveOut(m, "it was taken away")
	return nil
}

// remove forgets a member and ends its goroutine. The lock is held.
func (s *state) remove(m *member) {
	s.members = slices.DeleteFunc(s.members, func(o *member) bool { return o == m })
	m.leave()
}

// leaveOut takes a member out of the scheduler, and its turns back with the tokens that
// they have. One that was to drain goes for good. The lock is held.
func (s *state) leaveOut(m *member, why string) {
	if m.draining {
		s.remove(m)
	}
	if !m.serves {
		return
	}
	m.serves = false
	s.cfg.Log.Info("member of the fleet is left out", "member", m.name, "reason", why)
	for _, t := range s.trajectories {
		t.cutOn(m.name)
	}
	_ = s.handle(scheduler.Leave{Engine: m.name}) // the scheduler knows it
}

// watch asks the member for its status until it has left.
func (m *member) watch() {
	ticker := time.NewTicker(m.fleet.cfg.Every)
	defer ticker.Stop()
	for {
		m.visit(m.ctx)
		select {
		case <-ticker.C:
		case <-m.wake:
		case <-m.ctx.Done():
			return
		}
	}
}

// visit asks the member for its status. A member that is well joins the scheduler, after it has
// loaded the policy where it holds another one; any other is left out.
func (m *member) visit(ctx context.Context) {
	f := m.fleet
	select {
	case m.talk <- struct{}{}:
	default:
		return // it loads
	}
	defer func() { <-m.talk }()
	st, err := m.ask(ctx)
	f.mu.Lock()
	if f.state.swapping || ctx.Err() != nil {
		f.mu.Unlock()
		return
	}
	want := f.state.target
	if err == nil && m.serves && st.Version != want.version {
		err = fmt.Errorf("it serves version %d, want %d", st.Version, want.version)
	}
	if err != nil {
		f.state.leaveOut(m, err.Error())
	}
	if err == nil && m.serves {
		err = m.advance(st)
	}
	serves := m.serves
	f.mu.Unlock()
	if err != nil || serves || want.version < 0 || st.Draining {
		return
	}
	if st.Version != want.version {
		if st, err = m.load(ctx, want); err != nil {
			f.cfg.Log.Warn("member of the fleet does not load the policy", "member", m.name, "policy_version", want.version, "err", err)
			return
		}
	}
	m.admit(st, want)
}

// ask returns the status of the engine. It refuses impossible numbers.
func (m *member) ask(ctx context.Context) (inference.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, m.fleet.cfg.Patience)
	defer cancel()
	st, err := m.engine.Status(ctx)
	switch {
	case err != nil:
		return st, fmt.Errorf("status: %w", err)
	case st.Capacity < 1 || st.MaxContext < 2:
		return st, fmt.Errorf("it reports a capacity of %d tokens and contexts of %d", st.Capacity, st.MaxContext)
	case st.Used < 0 || st.Running < 0 || st.Waiting < 0 || st.Tokens < 0 || st.Passes < 0:
		return st, fmt.Errorf("it reports negative counts: %+v", st)
	}
	return st, nil
}

// mostTokens bounds what a member may say that it has sampled between two answers.
const mostTokens = 1 << 30

// advance tells the scheduler how far the member has come. It counts the sampled tokens of
// each row, not passes: a pass of an engine of several devices serves a part of the rows.
// The lock is held.
func (m *member) advance(st inference.Status) error {
	s := m.fleet.state
	if st.Draining && !m.draining {
		m.status = st
		return s.handle(scheduler.Drain{Engine: m.name})
	}
	made := st.Tokens - m.status.Tokens
	if made < 0 || made > mostTokens {
		err := fmt.Errorf("it reports %d sampled tokens after %d", st.Tokens, m.status.Tokens)
		s.leaveOut(m, err.Error())
		return err
	}
	m.passes += made / int64(max(1, st.Running, m.status.Running))
	m.status = st
	used := min(1, float64(st.Used)/float64(st.Capacity))
	if err := s.handle(scheduler.Advance{Engine: m.name, Passes: m.passes, Used: used}); err != nil {
		s.leaveOut(m, err.Error())
		return err
	}
	return nil
}

// admit lets the scheduler use the member, which holds the policy.
func (m *member) admit(st inference.Status, want target) {
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.target != want || m.serves || f.state.find(m.name) != m {
		return
	}
	m.status, m.passes, m.failures = st, 0, 0
	err := f.state.handle(scheduler.Join{Engine: m.name, Capacity: st.Capacity, Longest: int64(st.MaxContext)})
	if err != nil {
		f.cfg.Log.Warn("member of the fleet cannot join", "member", m.name, "err", err)
		return
	}
	m.serves = true
	f.cfg.Log.Info("member of the fleet serves", "member", m.name, "capacity_tokens", st.Capacity, "policy_version", want.version)
}

// mostFailures is how many turns in a row may fail on a member before it is left out.
const mostFailures = 3

// noteFailure counts a failed turn. The member is asked at once whether it is alive.
// The lock is held.
func (m *member) noteFailure(err error) {
	m.fleet.cfg.Log.Warn("member of the fleet fails in a turn", "member", m.name, "err", err)
	if m.failures++; m.failures >= mostFailures {
		m.fleet.state.leaveOut(m, "its turns fail")
		return // it is asked again at the next tick
	}
	m.askNow()
}

// askNow ends the wait for the next question.
func (m *member) askNow() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
