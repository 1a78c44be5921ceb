package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/fleet"
	"temper/internal/rl"
)

const (
	vocab    = 50
	endToken = 7
	context_ = 4096
)

// errDead is what a dead engine says.
var errDead = errors.New("connection refused")

// fake is an exact engine: a token follows from version, seed and position. Each takes a
// while, and a test may break it in any way.
type fake struct {
	pace     time.Duration // of a token
	capacity int64

	mu       sync.Mutex
	version  int64
	dead     bool
	deaths   chan struct{} // closed when it dies
	lie      func(*inference.Status)
	spoil    func(*inference.Generation) error // of the next generation
	loadErr  error
	draining bool
	running  int
	tokens   int64
	served   int
	released []string
	most     int // running at a time
}

func newFake(capacity int64) *fake {
	return &fake{pace: time.Millisecond, capacity: capacity, version: -1, deaths: make(chan struct{})}
}

func draw(version int64, seed uint64, pos int) (int32, float32) {
	u := rl.Uniform(seed+uint64(version)*7919, pos)
	return int32(u * vocab), -u
}

func (e *fake) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	e.mu.Lock()
	version, dead, deaths, spoil, pace := e.version, e.dead, e.deaths, e.spoil, e.pace
	e.spoil = nil
	e.mu.Unlock()
	switch {
	case dead:
		return inference.Generation{}, errDead
	case version < 0 || req.Version >= 0 && req.Version != version:
		return inference.Generation{}, inference.ErrStaleVersion
	case len(req.Tokens)+req.MaxTokens > context_:
		return inference.Generation{}, fmt.Errorf("at most %d: %w", context_, inference.ErrTooLarge)
	}
	e.count(1)
	defer e.count(-1)
	gen := inference.Generation{Version: version, Finish: rl.FinishLength}
	for i := range req.MaxTokens {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), inference.ErrCut) {
				gen.Finish = rl.FinishAbort
				return gen, nil
			}
			return inference.Generation{}, ctx.Err()
		case <-deaths:
			return inference.Generation{}, errDead
		case <-time.After(pace):
		}
		id, logprob := draw(version, req.Seed, len(req.Tokens)+i)
		gen.Tokens, gen.Logprobs = append(gen.Tokens, id), append(gen.Logprobs, logprob)
		e.mu.Lock()
		e.tokens++
		e.mu.Unlock()
		if slices.Contains(req.Stop, id) {
			gen.Finish = rl.FinishStop
			break
		}
	}
	if spoil != nil {
		if err := spoil(&gen); err != nil {
			return inference.Generation{}, err
		}
	}
	return gen, nil
}

func (e *fake) count(by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running += by
	e.most = max(e.most, e.running)
	if by < 0 {
		e.served++
	}
}

func (e *fake) Release(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released = append(e.released, session)
}

func (e *fake) Version() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version
}

func (e *fake) MaxContext() int { return context_ }

func (e *fake) Load(_ context.Context, _ blob.Ref, version int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return errDead
	}
	if e.loadErr != nil {
		return e.loadErr
	}
	e.version = version
	return nil
}

func (e *fake) Status(context.Context) (inference.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return inference.Status{}, errDead
	}
	st := inference.Status{
		Version: e.version, MaxContext: context_, Capacity: e.capacity, Running: e.running, Tokens: e.tokens, Passes: e.tokens, Exact: true, Draining: e.draining,
	}
	if e.lie != nil {
		e.lie(&st)
	}
	return st, nil
}

// set changes it under its lock.
func (e *fake) set(change func(*fake)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// die ends all that runs. A process that starts again holds no policy.
func (e *fake) die() {
	e.set(func(e *fake) {
		if !e.dead {
			e.dead, e.version = true, -1
			close(e.deaths)
		}
	})
}

func (e *fake) revive() {
	e.set(func(e *fake) {
		if e.dead {
			e.dead, e.tokens, e.deaths = false, 0, make(chan struct{})
		}
	})
}

// newFleet makes a fleet of fakes that serve version 1, whose reservations must be zero at
// the end of the test.
func newFleet(t *testing.T, engines ...*fake) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(fleet.Config{MaxContext: context_, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkEmpty(t, f) })
	t.Cleanup(f.Close)
	for i, e := range engines {
		if err := f.Join(fleet.Member{Name: fmt.Sprint("m", i), Engine: e}); err != nil {
			t.Fatal(err)
		}
	}
	if len(engines) > 0 {
		if err := f.Load(t.Context(), blob.Ref{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// checkEmpty counts what a fleet has reserved after a test: nothing.
func checkEmpty(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	st := f.Stats()
	if st.Reserved != 0 || st.Waiting != 0 || st.Running != 0 || st.Paused != 0 {
		t.Errorf("reservations are left: %+v", st)
	}
	if st.Submitted != st.Finished+st.Cancelled+st.Refused {
		t.Errorf("%+v: want each trajectory to end once", st)
	}
	if n := f.Known(); n != 0 {
		t.Errorf("%d trajectories are left", n)
	}
}

func request(session string, seed uint64, tokens []int32, n int) inference.Request {
	return inference.Request{Tokens: tokens, MaxTokens: n, Stop: []int32{endToken}, Temperature: 1, Seed: seed, Version: 1, Session: session}
}

// alone is what an engine gives that nobody disturbs.
func alone(req inference.Request, version int64) inference.Generation {
	gen := inference.Generation{Version: version, Finish: rl.FinishLength}
	for i := range req.MaxTokens {
		id, logprob := draw(version, req.Seed, len(req.Tokens)+i)
		gen.Tokens, gen.Logprobs = append(gen.Tokens, id), append(gen.Logprobs, logprob)
		if slices.Contains(req.Stop, id) {
			gen.Finish = rl.FinishStop
			break
		}
	}
	return gen
}

// turns is the number of generations that ended here.
func (e *fake) turns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.served
}
