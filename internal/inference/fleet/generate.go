package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"temper/internal/inference"
	"temper/internal/inference/scheduler"
	"temper/internal/rl"
)

// mostAttempts bounds how often members may fail in one turn: a request that none of them
// can answer must not go round for ever.
const mostAttempts = 16

// turn is a request under way, with what members have sampled of it so far.
type turn struct {
	f      *Fleet
	req    inference.Request // with the tokens sampled so far appended
	t      *trajectory
	begin  int64 // the fleet's version when it began
	sofar  inference.Generation
	failed int
}

// Generate implements inference.Engine. It waits until a member has room. When its member goes
// away, another member continues from what was sampled.
func (f *Fleet) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	if err := checkRequest(&req, f.cfg.MaxContext); err != nil {
		return inference.Generation{}, err
	}
	if err := ctx.Err(); err != nil {
		return ended(ctx, inference.Generation{}, f.Version)
	}
	f.mu.Lock()
	u, err := f.open(req)
	f.mu.Unlock()
	if err != nil {
		return inference.Generation{}, err
	}
	for {
		p, sampling, err := u.await(ctx)
		if err != nil {
			u.giveUp()
			if ctx.Err() != nil {
				return ended(ctx, u.sofar, f.Version)
			}
			return inference.Generation{}, err
		}
		gen, err := p.member.engine.Generate(sampling, u.req)
		p.end()
		done, err := u.settle(ctx, p, gen, err)
		switch {
		case ctx.Err() != nil && !done:
			u.giveUp()
			return ended(ctx, u.sofar, f.Version)
		case err != nil:
			u.giveUp()
			return inference.Generation{}, err
		case done:
			return u.sofar, nil
		}
	}
}

// ended returns the answer to a request whose context is over.
func ended(ctx context.Context, sofar inference.Generation, version func() int64) (inference.Generation, error) {
	if !errors.Is(context.Cause(ctx), inference.ErrCut) {
		return inference.Generation{}, ctx.Err()
	}
	if len(sofar.Tokens) == 0 {
		sofar.Version = version()
	}
	sofar.Finish = rl.FinishAbort
	return sofar, nil
}

// checkRequest refuses what cannot be served whatever the load.
func checkRequest(req *inference.Request, maxContext int) error {
	switch n := len(req.Tokens); {
	case n == 0 || req.MaxTokens < 1:
		return fmt.Errorf("generate: %d context tokens and up to %d new ones, want at least 1 of each", n, req.MaxTokens)
	case req.MaxTokens > maxContext-n:
		return fmt.Errorf("generate: context of %d and %d new tokens exceed the limit of %d: %w", n, req.MaxTokens, maxContext, inference.ErrTooLarge)
	}
	return nil
}

// open begins a turn. The lock is held.
func (f *Fleet) open(req inference.Request) (*turn, error) {
	switch {
	case f.ctx.Err() != nil:
		return nil, ErrClosed
	case f.state.target.version < 0:
		return nil, fmt.Errorf("generate: no policy is loaded: %w", inference.ErrStaleVersion)
	case req.Version >= 0 && req.Version != f.state.target.version:
		return nil, fmt.Errorf("generate: version %d, the fleet serves %d: %w", req.Version, f.state.target.version, inference.ErrStaleVersion)
	}
	t, err := f.state.enter(&req)
	if err != nil {
		return nil, err
	}
	return &turn{f: f, req: req, t: t, begin: f.state.target.version}, nil
}

// await waits until a member is to sample the turn.
func (u *turn) await(ctx context.Context) (*attempt, context.Context, error) {
	for {
		u.f.mu.Lock()
		if err := u.t.err; err != nil {
			u.f.mu.Unlock()
			return nil, nil, err
		}
		if m := u.t.granted; m != nil {
			p, sampling := u.f.newAttempt(ctx, m)
			u.f.state.dropCache(u.t, m)
			u.t.granted, u.t.attempt, u.t.holder = nil, p, m
			u.f.mu.Unlock()
			return p, sampling, nil
		}
		u.f.mu.Unlock()
		select {
		case <-u.t.wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-u.f.ctx.Done():
			return nil, nil, ErrClosed
		}
	}
}

// newAttempt makes an attempt that can be cut, and the context to sample under. A member that does not give a generation
// back in time loses it.
func (f *Fleet) newAttempt(ctx context.Context, m *member) (*attempt, context.Context) {
	hard, end := context.WithCancel(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), inference.ErrCut) {
			end()
		}
	})
	stopFleet := context.AfterFunc(f.ctx, end)
	sampling, cut := context.WithCancelCause(hard)
	stopCut := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), inference.ErrCut) {
			cut(inference.ErrCut)
		}
	})
	stopPatience := context.AfterFunc(sampling, func() {
		timer := time.AfterFunc(f.cfg.Patience, end)
		context.AfterFunc(hard, func() { timer.Stop() })
	})
	return &attempt{member: m, cut: cut, end: func() {
		stopPatience()
		stopCaller()
		stopFleet()
		stopCut()
		cut(nil)
		end()
	}}, sampling
}

// settle processes the answer of a member. done means that the turn is complete; an error
// that no other member could avoid ends it, too.
func (u *turn) settle(ctx context.Context, p *attempt, gen inference.Generation, err error) (done bool, _ error) {
	f, t := u.f, u.t
	f.mu.Lock()
	defer f.mu.Unlock()
	t.attempt = nil
	left := p.taken
	if err == nil {
		if err = u.checkGeneration(&gen); err == nil {
			u.keep(&gen)
			done = gen.Finish != rl.FinishAbort
		}
	}
	switch {
	case done:
		p.member.failures = 0
		u.finish()
		return true, nil
	case ctx.Err() != nil:
		return false, nil
	case f.ctx.Err() != nil:
		return false, ErrClosed
	case t.released:
		return false, fmt.Errorf("generate: session %q was released", t.session)
	case left:
		return false, nil
	case errors.Is(err, inference.ErrTooLarge):
		return false, err
	case errors.Is(err, inference.ErrStaleVersion) && u.req.Version >= 0 && u.req.Version != f.state.target.version:
		return false, err
	case err == nil:
		err = errors.New("it gave a generation back that was not taken away")
	}
	if f.state.handle(scheduler.Reject{ID: t.info.ID, Attempt: t.number, Context: t.clip(len(u.req.Tokens))}) != nil {
		if err := u.resubmit(); err != nil {
			return false, err
		}
	}
	if errors.Is(err, inference.ErrOverloaded) {
		return false, nil
	}
	p.member.noteFailure(err)
	if u.failed++; u.failed >= mostAttempts {
		return false, fmt.Errorf("generate: %d attempts failed, the last one on member %q: %w", u.failed, p.member.name, err)
	}
	return false, nil
}

// checkGeneration finds what no engine may say.
func (u *turn) checkGeneration(gen *inference.Generation) error {
	n := len(gen.Tokens)
	ended := func(id int32) bool { return slices.Contains(u.req.Stop, id) }
	switch {
	case n > u.req.MaxTokens || len(gen.Logprobs) != n || n == 0 && gen.Finish != rl.FinishAbort:
		return fmt.Errorf("%d tokens with %d logprobs, want 1 to %d", n, len(gen.Logprobs), u.req.MaxTokens)
	case gen.Finish != rl.FinishStop && gen.Finish != rl.FinishLength && gen.Finish != rl.FinishAbort:
		return fmt.Errorf("generation finished by %q", gen.Finish)
	case n > 0 && gen.Version != u.f.state.target.version && (u.req.Version >= 0 || gen.Version != u.begin):
		return fmt.Errorf("version %d answered, want %d: %w", gen.Version, u.f.state.target.version, inference.ErrStaleVersion)
	case n > 0 && u.req.Version >= 0 && gen.Version != u.req.Version:
		return fmt.Errorf("version %d answered, want %d: %w", gen.Version, u.req.Version, inference.ErrStaleVersion)
	case gen.Finish == rl.FinishLength && n != u.req.MaxTokens:
		return fmt.Errorf("length ended it after %d tokens of %d", n, u.req.MaxTokens)
	case gen.Finish == rl.FinishStop && !ended(gen.Tokens[n-1]):
		return fmt.Errorf("token %d ended it, which is none of %v", gen.Tokens[n-1], u.req.Stop)
	}
	for i, id := range gen.Tokens {
		switch lp := float64(gen.Logprobs[i]); {
		case id < 0 || math.IsNaN(lp) || math.IsInf(lp, 0):
			return fmt.Errorf("token %d is %d with logprob %g", i, id, lp)
		case ended(id) && (i < n-1 || gen.Finish != rl.FinishStop):
			return fmt.Errorf("it went on after token %d, or not because of it", id)
		}
	}
	return nil
}

// keep appends what was sampled. The rest of the turn must come from the same version.
func (u *turn) keep(gen *inference.Generation) {
	u.sofar.Tokens = append(u.sofar.Tokens, gen.Tokens...)
	u.sofar.Logprobs = append(u.sofar.Logprobs, gen.Logprobs...)
	u.sofar.Kept = append(u.sofar.Kept, gen.Kept...)
	u.sofar.Top = append(u.sofar.Top, gen.Top...)
	u.sofar.Finish = gen.Finish
	if len(gen.Tokens) == 0 {
		return
	}
	u.sofar.Version, u.req.Version = gen.Version, gen.Version
	u.req.Tokens = slices.Concat(u.req.Tokens, gen.Tokens)
	u.req.MaxTokens -= len(gen.Tokens)
}

// finish ends a turn. A trajectory of one turn ends with it. The lock is held.
func (u *turn) finish() {
	f, t := u.f, u.t
	t.granted, t.busy, t.context = nil, false, len(u.req.Tokens)
	if f.state.handle(scheduler.Pause{ID: t.info.ID, Attempt: t.number, Context: t.clip(t.context)}) != nil {
		f.state.drop(t) // it was taken away and waits for a member; its next turn begins anew
	} else {
		t.paused = true
	}
	if t.released || t.info.ID != t.session {
		f.state.end(t)
	}
}

// resubmit makes the rest of a turn a new trajectory. The lock is held.
func (u *turn) resubmit() error {
	u.f.state.drop(u.t)
	u.t.granted, u.t.busy = nil, false
	return u.f.state.submitRest(u.t, &u.req)
}

// drop makes the scheduler forget a trajectory that continues later. The lock is held.
func (s *state) drop(t *trajectory) {
	if t.known {
		t.known, t.paused = false, false
		_ = s.handle(scheduler.Cancel{ID: t.info.ID})
	}
}

// giveUp ends a turn that has no answer. The session may ask again.
func (u *turn) giveUp() {
	f, t := u.f, u.t
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.drop(t)
	t.granted, t.busy = nil, false
	if t.released || t.info.ID != t.session {
		f.state.end(t)
	}
}
