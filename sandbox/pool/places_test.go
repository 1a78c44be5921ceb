package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// cores is a machine on which each program needs work of a core, and starves when it
// has to share one with more than three others.
type cores struct {
	mu        sync.Mutex
	computing int
	most      int
}

func (c *cores) enter() (crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.computing++
	c.most = max(c.most, c.computing)
	return c.computing > 1
}

func (c *cores) leave() {
	c.mu.Lock()
	c.computing--
	c.mu.Unlock()
}

// TestWhatComputesWaitsForItsTurn: 64 programs that compute run a few at a time, in the
// order in which they came.
func TestWhatComputesWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var machine cores
		var order []string
		f := &fakes{behave: func(_ context.Context, _ *fake, req sandbox.Request) (sandbox.Result, error) {
			machine.enter()
			defer machine.leave()
			time.Sleep(300 * time.Millisecond)
			machine.mu.Lock()
			order = append(order, req.ID)
			machine.mu.Unlock()
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		p := newPool(t, f, pool.Config{Zygotes: 2, Slots: 64, Computing: 8})
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				if _, err := p.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i / 4)}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		if machine.most != 4 {
			t.Errorf("%d programs computed at a time, want 4", machine.most)
		}
		for i, id := range order {
			if id != fmt.Sprint(i/4) {
				t.Fatalf("order of the ends: %v", order)
			}
		}
	})
}

// TestSleepersBlockNobody: what is seen to sleep gives its turn away, and counts again
// when it wakes up.
func TestSleepersBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var machine cores
		f := &fakes{behave: func(ctx context.Context, _ *fake, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "compute" {
				machine.enter()
				defer machine.leave()
				time.Sleep(100 * time.Millisecond)
				return sandbox.Result{Status: sandbox.StatusOK}, nil
			}
			time.Sleep(20 * time.Millisecond)
			jail.ReportDemand(ctx, jail.Demand{Core: false})
			time.Sleep(9 * time.Second)
			jail.ReportDemand(ctx, jail.Demand{Core: true})
			time.Sleep(time.Second)
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		p := newPool(t, f, pool.Config{Zygotes: 2, Slots: 64, Computing: 8})
		var calls sync.WaitGroup
		start := time.Now()
		run := func(code string, within time.Duration) {
			calls.Go(func() {
				_, err := p.Execute(t.Context(), sandbox.Request{Code: code})
				if took := time.Since(start); err != nil || took > within {
					t.Errorf("%s: %v after %v, want at most %v", code, err, took, within)
				}
			})
		}
		for range 40 { // 200 ms until all of them run
			run("sleep", 10300*time.Millisecond)
		}
		synctest.Wait()
		run("compute", time.Second)
		time.Sleep(9100 * time.Millisecond) // now some of them are awake again
		run("compute", 11*time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Waiting != 1 {
			t.Errorf("%d wait beside sleepers that woke up, want 1", s.Waiting)
		}
		calls.Wait()
	})
}

// TestLongProgramsDoNotKeepShortOnesOut, however many they are: those that become long
// where four run already stop, and go on in their order.
func TestLongProgramsDoNotKeepShortOnesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{behave: func(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "long" {
				time.Sleep(300 * time.Millisecond)
				if resume := jail.ReportDemand(ctx, jail.Demand{Core: true, Used: 250 * time.Millisecond}); resume != nil {
					select {
					case <-resume:
					case <-ctx.Done():
						return sandbox.Result{}, ctx.Err()
					}
				}
				return wait(ctx, in, req, 10*time.Second)
			}
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		p := newPool(t, f, pool.Config{Zygotes: 2, Slots: 64, Computing: 8})
		var calls sync.WaitGroup
		start := time.Now()
		for i := range 13 {
			calls.Go(func() {
				ctx := t.Context()
				if i == 6 { // leaves while it is stopped
					short, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					ctx = short
				}
				res, err := p.Execute(ctx, sandbox.Request{Code: "long"})
				if i == 6 {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got error %v", err)
					}
					return
				}
				turn := i / 4
				if i > 6 {
					turn = (i - 1) / 4
				}
				want := time.Duration(1+turn) * 10 * time.Second
				if took := time.Since(start); err != nil || res.Usage.Queue > 0 || took < want || took > want+2*time.Second {
					t.Errorf("long program %d: queue %v, %v after %v, want %v", i, res.Usage.Queue, err, took, want)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		for range 20 {
			res, err := p.Execute(t.Context(), sandbox.Request{})
			if err != nil || res.Usage.Queue > 0 {
				t.Errorf("a short program waited %v, %v", res.Usage.Queue, err)
			}
			time.Sleep(time.Second)
		}
		calls.Wait()
	})
}

// TestStarvedCallRunsAgainBesideFew: a program that starved among four runs again when
// fewer compute than there are cores, before what came after it.
func TestStarvedCallRunsAgainBesideFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var machine cores
		var starved atomic.Int32
		f := &fakes{behave: func(_ context.Context, _ *fake, req sandbox.Request) (sandbox.Result, error) {
			crowded := machine.enter()
			defer machine.leave()
			time.Sleep(time.Second)
			if crowded && req.Code == "long" {
				starved.Add(1)
				return sandbox.Result{}, fmt.Errorf("%w: no core", jail.ErrStarved)
			}
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		p := newPool(t, f, pool.Config{Zygotes: 1, Slots: 64, Computing: 8})
		outcomes := make(chan error, 8)
		for _, code := range []string{"", "", "", "long", "", "", "", ""} {
			go func() {
				_, err := p.Execute(t.Context(), sandbox.Request{Code: code})
				outcomes <- err
			}()
			synctest.Wait()
		}
		for range cap(outcomes) {
			if err := <-outcomes; err != nil {
				t.Error(err)
			}
		}
		if starved.Load() != 1 || p.Stats().Starved != 1 {
			t.Errorf("starved %d times, counted %d, want 1", starved.Load(), p.Stats().Starved)
		}
	})
}

// TestCallerLeavesTheQueue at each point of it, and nobody waits for a place that is gone.
func TestCallerLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 8, Computing: 2})
		var calls sync.WaitGroup
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*500*time.Microsecond)
			defer cancel()
			calls.Go(func() {
				_, err := p.Execute(ctx, sandbox.Request{Code: []string{"", "starve"}[i%2]})
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jail.ErrStarved) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if s := p.Stats(); s.Busy != 0 || s.Waiting != 0 {
			t.Errorf("stats %+v after all calls", s)
		}
		if _, err := p.Execute(t.Context(), sandbox.Request{}); err != nil {
			t.Error(err)
		}
	})
}
