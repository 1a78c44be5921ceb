package sampling

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/internal/inference"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
	"temper/trainer/engine"
)

// localEngine is one of this process with a gauge.
type localEngine struct {
	Engine
	running atomic.Int64
}

func (e *localEngine) Stats() engine.Stats { return engine.Stats{} }

func (e *localEngine) Status(context.Context) (inference.Status, error) {
	return inference.Status{Running: int(e.running.Load()), Used: e.running.Load(), Capacity: 8}, nil
}

// TestGaugesOfAShortCall say what went on in it, and not what was before it.
func TestGaugesOfAShortCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &localEngine{}
		seen := newEngineMonitor(t.Context(), e)
		time.Sleep(time.Millisecond)
		e.running.Store(4)
		time.Sleep(20 * time.Millisecond)
		e.running.Store(2)
		time.Sleep(20 * time.Millisecond)
		use := seen.end()
		if mean := use.Running.Sum / float64(use.Running.Looks); use.Running.Max != 4 || mean != 3 || use.KVUse.Max != 0.5 {
			t.Errorf("running %+v, cache %+v, want 4 at most and 3 in the mean, and half of the cache", use.Running, use.KVUse)
		}
	})
}

// TestProgressTellsWhyTheSandboxIsMissed, and stops telling when it is back.
func TestProgressTellsWhyTheSandboxIsMissed(t *testing.T) {
	down := fmt.Errorf("%w: connection refused", sandbox.ErrUnavailable)
	var err error
	r := New(Config{})
	exec := watchedExecutor{&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{}, err
	}}, &r.trouble, new(atomic.Int64)}
	for _, step := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{down, "sandbox unavailable: connection refused"},
		{sandbox.ErrOverloaded, "sandbox unavailable: connection refused"},
		{nil, ""},
		{context.Canceled, ""},
	} {
		err = step.err
		_, _ = exec.Execute(t.Context(), sandbox.Request{ID: "x"}) // the fake's answer
		if got := TroubleIn(r.NewProgress().String()); got != step.want {
			t.Errorf("after %v: %q, want %q", step.err, got, step.want)
		}
	}
}

// lookedAt is an engine that counts how often somebody asks for its status.
type lookedAt struct {
	Engine
	asked  atomic.Int64
	answer func(context.Context) (inference.Status, error)
}

func (e *lookedAt) Status(ctx context.Context) (inference.Status, error) {
	e.asked.Add(1)
	return e.answer(ctx)
}

// countedHere is one of this process.
type countedHere struct{ *lookedAt }

func (countedHere) Stats() engine.Stats { return engine.Stats{} }

// TestLooks: an engine of another process is asked seldom, since each look is a request to
// its server, and one that does not answer does not hold up the end of a call.
func TestLooks(t *testing.T) {
	busy := func(context.Context) (inference.Status, error) {
		return inference.Status{Running: 3, Used: 1, Capacity: 4}, nil
	}
	hangs := func(ctx context.Context) (inference.Status, error) {
		<-ctx.Done()
		return inference.Status{}, ctx.Err()
	}
	here, there, silent := countedHere{&lookedAt{answer: busy}}, &lookedAt{answer: busy}, &lookedAt{answer: hangs}
	for _, c := range []struct {
		engine Engine
		asked  *atomic.Int64
		want   int64
		mean   float64
	}{{here, &here.asked, 1999, 3}, {there, &there.asked, 4, 3}, {silent, &silent.asked, 1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			l := newEngineMonitor(t.Context(), c.engine)
			time.Sleep(10*time.Second - time.Millisecond)
			begin := time.Now()
			seen := l.end()
			if n := c.asked.Load(); n != c.want || seen.Running.Sum != c.mean*float64(seen.Running.Looks) || time.Since(begin) > 0 {
				t.Errorf("%T: asked %d times, want %d; %+v after %v", c.engine, n, c.want, seen.Running, time.Since(begin))
			}
		})
	}
}
