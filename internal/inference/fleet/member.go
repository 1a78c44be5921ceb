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

// member is an engine of the fleet. Its keeper, a goroutine, asks it how it is and lets it
// join the scheduler when it is well. The fleet's lock guards what is below talk.
type member struct {
	name   string
	engine Engine
	poke   chan struct{} // asks the keeper not to wait for its next question
	// ctx ends when it has left or drained. Its keeper lives under it.
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
	case f.find(m.Name) != nil:
		return fmt.Errorf("join: %q: %w; give the second one another name", m.Name, ErrDuplicate)
	}
	added := &member{name: m.Name, engine: m.Engine, poke: make(chan struct{}, 1), talk: make(chan struct{}, 1)}
	added.ctx, added.leave = context.WithCancel(f.ctx)
	f.members = append(f.members, added)
	f.aside.Go(func() { f.keep(added) })
	return nil
}

// Drain gives a member nothing new, waits until it holds no trajectory, and takes it away.
// When ctx ends first, the member goes on draining.
func (f *Fleet) Drain(ctx context.Context, name string) error {
	f.mu.Lock()
	m := f.find(name)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("drain: %q: %w", name, ErrUnknown)
	}
	m.draining = true
	if m.serves {
		_ = f.handle(scheduler.Drain{Engine: name}) // the scheduler knows it
	} else {
		f.remove(m)
	}
	f.mu.Unlock()
	select {
	case <-m.ctx.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave takes a member away at once. What it sampled goes on elsewhere.
func (f *Fleet) Leave(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(name)
	if m == nil {
		return fmt.Errorf("leave: %q: %w", name, ErrUnknown)
	}
	f.remove(m)
	f.leaveOut(m, "it was taken away")
	return nil
}

// remove forgets a member and ends its keeper. The lock is held.
func (f *books) remove(m *member) {
	f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
	m.leave()
}

// leaveOut takes a member out of the scheduler, and its turns back with the tokens that
// they have. One that was to drain goes for good. The lock is held.
func (f *books) leaveOut(m *member, why string) {
	if m.draining {
		f.remove(m)
	}
	if !m.serves {
		return
	}
	m.serves = false
	f.cfg.Log.Info("member of the fleet is left out", "member", m.name, "reason", why)
	for _, t := range f.trajectories {
		t.cutOn(m.name)
	}
	_ = f.handle(scheduler.Leave{Engine: m.name}) // the scheduler knows it
}

// keep asks a member how it is until it has left.
func (f *crew) keep(m *member) {
	ticker := time.NewTicker(f.cfg.Every)
	defer ticker.Stop()
	for {
		f.visit(m.ctx, m)
		select {
		case <-ticker.C:
		case <-m.poke:
		case <-m.ctx.Done():
			return
		}
	}
}

// visit asks a member how it is. One that is well is told to the scheduler, after it has
// loaded the policy where it holds another one; any other is left out.
func (f *crew) visit(ctx context.Context, m *member) {
	select {
	case m.talk <- struct{}{}:
	default:
		return // it loads
	}
	defer func() { <-m.talk }()
	st, err := f.ask(ctx, m)
	f.mu.Lock()
	if f.swapping || ctx.Err() != nil {
		f.mu.Unlock()
		return
	}
	want := f.target
	if err == nil && m.serves && st.Version != want.version {
		err = fmt.Errorf("it serves version %d, want %d", st.Version, want.version)
	}
	if err != nil {
		f.leaveOut(m, err.Error())
	}
	if err == nil && m.serves {
		err = f.advance(m, st)
	}
	serves := m.serves
	f.mu.Unlock()
	if err != nil || serves || want.version < 0 || st.Draining {
		return
	}
	if st.Version != want.version {
		if st, err = f.loadInto(ctx, m, want); err != nil {
			f.cfg.Log.Warn("member of the fleet does not load the policy", "member", m.name, "policy_version", want.version, "err", err)
			return
		}
	}
	f.admit(m, st, want)
}

// ask gets a status that makes sense.
func (f *crew) ask(ctx context.Context, m *member) (inference.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Patience)
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

// advance tells the scheduler how far a member has come. What it sampled for each row
// counts, not its passes: a pass of an engine of several devices serves a part of the rows.
// The lock is held.
func (f *crew) advance(m *member, st inference.Status) error {
	if st.Draining && !m.draining {
		m.status = st
		return f.handle(scheduler.Drain{Engine: m.name})
	}
	made := st.Tokens - m.status.Tokens
	if made < 0 || made > mostTokens {
		err := fmt.Errorf("it reports %d sampled tokens after %d", st.Tokens, m.status.Tokens)
		f.leaveOut(m, err.Error())
		return err
	}
	m.passes += made / int64(max(1, st.Running, m.status.Running))
	m.status = st
	used := min(1, float64(st.Used)/float64(st.Capacity))
	if err := f.handle(scheduler.Advance{Engine: m.name, Passes: m.passes, Used: used}); err != nil {
		f.leaveOut(m, err.Error())
		return err
	}
	return nil
}

// admit lets the scheduler use a member that holds the policy.
func (f *crew) admit(m *member, st inference.Status, want target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target != want || m.serves || f.find(m.name) != m {
		return
	}
	m.status, m.passes, m.failures = st, 0, 0
	err := f.handle(scheduler.Join{Engine: m.name, Capacity: st.Capacity, Longest: int64(st.MaxContext)})
	if err != nil {
		f.cfg.Log.Warn("member of the fleet cannot join", "member", m.name, "err", err)
		return
	}
	m.serves = true
	f.cfg.Log.Info("member of the fleet serves", "member", m.name, "capacity_tokens", st.Capacity, "policy_version", want.version)
}

// mostFailures is how many turns in a row may fail on a member before it is left out.
const mostFailures = 3

// blame counts a failed turn of a member. The keeper looks at once whether it is alive.
// The lock is held.
func (f *crew) blame(m *member, err error) {
	f.cfg.Log.Warn("member of the fleet fails in a turn", "member", m.name, "err", err)
	if m.failures++; m.failures >= mostFailures {
		f.leaveOut(m, "its turns fail")
		return // it is asked again at the next tick
	}
	m.hurry()
}

// hurry has a member asked at once.
func (m *member) hurry() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}
