package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"temper/internal/inference"
	"temper/internal/inference/scheduler"
)

// trajectory is what the fleet knows of a session from its first request, or from Begin, to
// Release. A request without a session is a trajectory of one turn. The fleet's lock guards
// it, except wake.
type trajectory struct {
	info    scheduler.Trajectory
	most    int           // tokens that the context may have, as announced
	session string        // as members know it
	context int           // tokens after the last turn
	wake    chan struct{} // something changed for the request that waits

	known    bool // the scheduler has it
	paused   bool // between two turns
	busy     bool // a request is under way
	released bool // Release came while a request was under way
	err      error
	number   int      // of the newest Start
	granted  *member  // where the newest Start wants it, until the request takes it
	attempt  *attempt // on the member that samples it
	holder   *member  // which may keep its cache
}

// attempt is one attempt of a request on a member.
type attempt struct {
	member *member
	cut    context.CancelCauseFunc
	// taken is set when the fleet has taken the turn away.
	taken bool
	end   context.CancelFunc // ends the attempt for good
}

// Begin implements inference.Planner.
func (f *Fleet) Begin(_ context.Context, list []inference.Trajectory) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	if f.ctx.Err() != nil {
		return ErrClosed
	}
	submit := scheduler.Submit{Trajectories: make([]scheduler.Trajectory, len(list))}
	for i, t := range list {
		if old := f.state.trajectories[t.Session]; t.Session == "" || old != nil && old.busy {
			return fmt.Errorf("begin: session %q is under way or has no name", t.Session)
		}
		submit.Trajectories[i] = scheduler.Trajectory{
			ID: t.Session, Run: t.Run, Problem: t.Problem, Stage: t.Stage, Step: t.Step, Prompt: t.Prompt, Limit: min(t.Limit, f.cfg.Longest),
		}
	}
	for _, t := range list { // a caller that went away without Release leaves these behind
		if old := f.state.trajectories[t.Session]; old != nil {
			f.state.end(old)
		}
	}
	for i, t := range list {
		f.state.trajectories[t.Session] = &trajectory{
			info: submit.Trajectories[i], most: t.Prompt + t.Limit, session: t.Session, wake: make(chan struct{}, 1), known: true,
		}
	}
	if err := f.state.handle(submit); err != nil {
		for _, t := range list {
			delete(f.state.trajectories, t.Session)
		}
		return fmt.Errorf("begin: %w", tooLarge(err))
	}
	return nil
}

// Recall implements inference.Recaller. It drops entries that the scheduler refuses.
func (f *Fleet) Recall(ended []inference.Ended) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return
	}
	for _, e := range ended {
		_ = f.state.handle(scheduler.Recall{Run: e.Run, Problem: e.Problem, Stage: e.Stage, Limit: e.Limit, Turns: e.Turns})
	}
}

// tooLarge gives an error of the scheduler the name that the port has for it.
func tooLarge(err error) error {
	if errors.Is(err, scheduler.ErrTooLarge) {
		return fmt.Errorf("%w: %w", inference.ErrTooLarge, err)
	}
	return err
}

// Release implements inference.Engine.
func (f *Fleet) Release(session string) {
	f.mu.Lock()
	t := f.state.trajectories[session]
	if t == nil || session == "" {
		f.mu.Unlock()
		return
	}
	if t.busy {
		t.released = true
		if t.attempt != nil {
			t.attempt.end()
		}
		f.mu.Unlock()
		return
	}
	holder := t.holder
	f.state.end(t)
	f.mu.Unlock()
	if holder != nil {
		holder.engine.Release(session)
	}
}

// end forgets a trajectory. One that ended after a turn teaches its length. The lock is held.
func (s *state) end(t *trajectory) {
	delete(s.trajectories, t.info.ID)
	if !t.known {
		return
	}
	t.known = false
	if t.paused && s.handle(scheduler.Finish{ID: t.info.ID, Attempt: t.number, Context: t.clip(t.context)}) == nil {
		return
	}
	_ = s.handle(scheduler.Cancel{ID: t.info.ID}) // a scheduler that has no such trajectory has nothing to cancel
}

// enter brings a request before the scheduler: as a turn of its session, or as a new
// trajectory. The lock is held.
func (s *state) enter(req *inference.Request) (*trajectory, error) {
	t := s.trajectories[req.Session]
	if req.Session == "" || t != nil && t.busy {
		s.anonymous++
		t = nil
	}
	if t == nil {
		t = &trajectory{session: req.Session, wake: make(chan struct{}, 1)}
		t.info.ID = req.Session
		if req.Session == "" || s.trajectories[req.Session] != nil {
			t.info.ID = "\x00" + strconv.FormatInt(s.anonymous, 10) // no session is called so
		}
		s.trajectories[t.info.ID] = t
	}
	t.busy, t.err = true, nil
	have := len(req.Tokens)
	switch {
	case t.known && !t.paused: // announced, and this is its first turn
		return t, nil
	case t.known && have+req.MaxTokens <= t.most &&
		s.handle(scheduler.Resume{ID: t.info.ID, Attempt: t.number, Context: t.clip(have)}) == nil:
		t.paused = false
		return t, nil
	case t.known: // it grows beyond what was announced
		_ = s.handle(scheduler.Cancel{ID: t.info.ID})
		t.known = false
	}
	if err := s.submitRest(t, req); err != nil {
		delete(s.trajectories, t.info.ID)
		return nil, err
	}
	return t, nil
}

// submitRest makes a request a trajectory that begins with its context. The lock is held.
func (s *state) submitRest(t *trajectory, req *inference.Request) error {
	have := len(req.Tokens)
	t.info.Prompt, t.info.Limit, t.most = have, min(req.MaxTokens, s.cfg.Longest), have+req.MaxTokens
	t.paused, t.known, t.busy = false, true, true
	if err := s.handle(scheduler.Submit{Trajectories: []scheduler.Trajectory{t.info}}); err != nil {
		t.known, t.busy = false, false
		return fmt.Errorf("generate: %w", tooLarge(err))
	}
	return nil
}

// grant notes where a trajectory is to be sampled. The lock is held.
func (s *state) grant(d scheduler.Decision) {
	t := s.trajectories[d.ID]
	if t == nil {
		return
	}
	t.number, t.granted = d.Attempt, s.find(d.Engine)
	t.notify()
}

// clip keeps a number of tokens below what the scheduler was told.
func (t *trajectory) clip(n int) int { return max(t.info.Prompt, min(n, t.info.Prompt+t.info.Limit)) }

// releaseOn drops a cache that others need. The lock is held, so another goroutine tells the member.
func (s *state) releaseOn(d scheduler.Decision) {
	t, m := s.trajectories[d.ID], s.find(d.Engine)
	if t == nil || m == nil || t.holder != m {
		return
	}
	s.dropCache(t, nil)
}

// dropCache releases what a member keeps of a trajectory that goes to another one. The lock
// is held, so another goroutine tells the member.
func (s *state) dropCache(t *trajectory, to *member) {
	m := t.holder
	if m == nil || m == to {
		return
	}
	t.holder = nil
	if t.session != "" && m.serves && s.ctx.Err() == nil {
		s.background.Go(func() { m.engine.Release(t.session) })
	}
}

// cutOn takes a trajectory away from a member. The lock is held.
func (t *trajectory) cutOn(name string) {
	if t.granted != nil && t.granted.name == name {
		t.granted = nil
	}
	if t.attempt != nil && t.attempt.member.name == name && !t.attempt.taken {
		t.attempt.taken = true
		t.attempt.cut(inference.ErrCut)
	}
}

// refuse ends a request that no engine can hold. The lock is held.
func (t *trajectory) refuse() {
	t.known, t.granted = false, nil
	t.err = fmt.Errorf("generate: %d tokens and up to %d more: %w", t.info.Prompt, t.info.Limit, inference.ErrTooLarge)
	t.notify()
}

func (t *trajectory) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
