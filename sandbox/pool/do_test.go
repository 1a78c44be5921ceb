package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/pool"
)

// TestDoHoldsASlot: what runs through Do and what runs through Execute share the
// slots and the queue.
func TestDoHoldsASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 1, Queue: 1})
		var calls sync.WaitGroup
		calls.Go(func() {
			err := p.Do(t.Context(), sandbox.Request{}, func(context.Context, pool.Interpreter) error {
				time.Sleep(time.Second)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		calls.Go(func() {
			res, err := p.Execute(t.Context(), sandbox.Request{})
			if err != nil || res.Usage.Queue != time.Second {
				t.Errorf("waited %v, %v", res.Usage.Queue, err)
			}
		})
		synctest.Wait()
		never := func(context.Context, pool.Interpreter) error { t.Error("was run"); return nil }
		if err := p.Do(t.Context(), sandbox.Request{}, never); !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("got error %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Do(ctx, sandbox.Request{}, never); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
		calls.Wait()
		mine := errors.New("mine")
		if err := p.Do(t.Context(), sandbox.Request{}, func(context.Context, pool.Interpreter) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestDoSpreadsOverIdleInterpreters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 4})
		seen := make(map[pool.Interpreter]int)
		for range 40 {
			err := p.Do(t.Context(), sandbox.Request{}, func(_ context.Context, in pool.Interpreter) error {
				seen[in]++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range seen {
			if n < 5 {
				t.Errorf("uneven: %v", seen)
			}
		}
		if len(seen) != 4 {
			t.Errorf("%d interpreters were used", len(seen))
		}
	})
}
