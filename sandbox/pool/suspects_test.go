package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/pool"
)

// TestSuspectsRunSideBySide: 64 honest calls of 9 s lose two interpreters each. One
// after the other they would wait for ten minutes.
func TestSuspectsRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{behave: sleepFor(9 * time.Second)}
		p := newPool(t, f, pool.Config{Zygotes: 2, Slots: 64, Computing: 128})
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				res, err := p.Execute(t.Context(), sandbox.Request{Stdin: fmt.Sprint(i)})
				if err != nil || res.Status != sandbox.StatusOK || res.Stdout != fmt.Sprint(i) {
					t.Errorf("got %+v, %v", res, err)
				}
			})
		}
		for range 2 { // the two that there are, twice
			time.Sleep(500 * time.Millisecond)
			f.killAll()
		}
		calls.Wait()
		if took := time.Since(start); took > 12*time.Second {
			t.Errorf("all had an answer after %v, want a run more and two deaths", took)
		}
		if got := f.alive(); got != 2 {
			t.Errorf("%d interpreters live on, want those of the pool", got)
		}
	})
}

// TestOnlyTheGuiltyIsBlamed: a call that ends its interpreter after a second takes 7
// suspects along once, and one of them runs alone on an interpreter that dies for
// another reason. Nobody else is answered killed.
func TestOnlyTheGuiltyIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep := sleepFor(5 * time.Second)
		f := &fakes{behave: func(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error) {
			if req.Code == "guilty" {
				time.AfterFunc(time.Second, in.die)
			}
			return sleep(ctx, in, req)
		}}
		p := newPool(t, f, pool.Config{Zygotes: 1, Slots: 64, Computing: 128})
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				req := sandbox.Request{ID: fmt.Sprint(i)}
				want := sandbox.StatusOK
				if i == 3 {
					req.Code, want = "guilty", sandbox.StatusKilled
				}
				res, err := p.Execute(t.Context(), req)
				if err != nil || res.Status != want || res.ID != req.ID {
					t.Errorf("call %d: got %+v, %v, want %s", i, res, err, want)
				}
			})
		}
		time.Sleep(3500 * time.Millisecond) // by now some run alone
		f.mu.Lock()
		last := f.all[len(f.all)-1]
		f.mu.Unlock()
		last.die()
		calls.Wait()
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("all had an answer after %v", took)
		}
	})
}

// TestWaitOfASuspectIsBounded: a caller hears in time that nobody could run its call.
func TestWaitOfASuspectIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{behave: sleepFor(5 * time.Minute)}
		p := newPool(t, f, pool.Config{Zygotes: 1, Slots: 64, Computing: 128})
		var late, ok atomic.Int32
		var calls sync.WaitGroup
		for range 40 { // 32 find room
			calls.Go(func() {
				start := time.Now()
				_, err := p.Execute(t.Context(), sandbox.Request{})
				switch {
				case err == nil:
					ok.Add(1)
				case !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "30s"):
					t.Errorf("got error %v", err)
				case time.Since(start) > 33*time.Second:
					t.Errorf("heard of it after %v", time.Since(start))
				default:
					late.Add(1)
				}
			})
		}
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			f.killAll()
		}
		calls.Wait()
		if late.Load() != 8 || ok.Load() != 32 {
			t.Errorf("%d were told so and %d answered, want 8 and 32", late.Load(), ok.Load())
		}
	})
}

// TestARoomInASharedCellIsSeen: 32 suspects fill the quarantine, and one of each 8 ends soon. Those
// that wait for room come in then, not when all of such 8 have ended.
func TestARoomInASharedCellIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var met sync.Map
		f := &fakes{behave: func(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error) {
			d := 25 * time.Second
			if _, known := met.LoadOrStore(in, true); !known || time.Since(start) > 3*time.Second {
				d = 3 * time.Second
			}
			return wait(ctx, in, req, d)
		}}
		p := newPool(t, f, pool.Config{Zygotes: 1, Slots: 64, Computing: 128})
		var calls sync.WaitGroup
		var soon atomic.Int32
		for range 36 {
			calls.Go(func() {
				if _, err := p.Execute(t.Context(), sandbox.Request{}); err != nil {
					t.Error(err)
				}
				if time.Since(start) < 10*time.Second {
					soon.Add(1)
				}
			})
		}
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			f.killAll()
		}
		calls.Wait()
		if got := soon.Load(); got != 8 {
			t.Errorf("%d were answered soon, want the 4 short ones and the 4 that came after them", got)
		}
	})
}

// TestCloseEndsTheInterpretersOfSuspects when its time is over.
func TestCloseEndsTheInterpretersOfSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{behave: sleepFor(time.Hour)}
		p, err := pool.New(t.Context(), pool.Config{Zygotes: 1}, f.start)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := p.Execute(t.Context(), sandbox.Request{})
			got <- err
		}()
		for range 2 {
			time.Sleep(500 * time.Millisecond)
			f.killAll()
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if err := <-got; !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("the suspect: %v", err)
		}
		if n := f.alive(); n != 0 {
			t.Errorf("%d interpreters live on", n)
		}
	})
}

// sleepFor makes programs that sleep, and die with their interpreter.
func sleepFor(d time.Duration) func(context.Context, *fake, sandbox.Request) (sandbox.Result, error) {
	return func(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error) {
		return wait(ctx, in, req, d)
	}
}

func (f *fakes) killAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.all {
		in.die()
	}
}

func (f *fakes) alive() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.all {
		select {
		case <-in.done:
		default:
			n++
		}
	}
	return n
}
